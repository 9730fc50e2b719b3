"""Data sets: fetched, checked, cached on the node, evicted when unused."""
