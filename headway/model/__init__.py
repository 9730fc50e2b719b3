"""Values: what a job asks, what a node has, what was granted, what was measured.

Frozen and validated; no I/O and no clock in here.
"""
