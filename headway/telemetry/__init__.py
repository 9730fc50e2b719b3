"""Readings of GPUs (`gpu.py`, the only import of pynvml) and of the host (`host.py`)."""
