"""Profiles of runs: the program wrapped by Nsight Systems, its report, and NVML's counters."""
