"""Readings of the GPUs (`gpu.py`, `nvml.py`: the only imports of pynvml) and of the host."""
