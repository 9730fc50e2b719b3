"""Limits of device memory that the driver holds for a control group: NVML of r615 and newer.

They are set by the full path of a directory of cgroup version 2, in bytes, by root alone, and not
for MIG devices. Beyond the hard limit programs in the group run out of memory. The soft one stays
0: only a daemon of MPS ends programs by it, and the driver adds it to all groups above, where it
stays if a group goes without being cleared. No limit is soft 0, hard the largest number.

Sources: NVML API reference, `nvmlDeviceSetMemoryLimits_v1` and its structures; NVIDIA's "MPS v3
Memory Partitioning". Untried on a real driver.
"""

import os
from pathlib import Path
from typing import Any

import pynvml

from headway.units import MIB

_NO_LIMIT = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
_NONE_THERE = (
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_NOT_SUPPORTED,  # also of a group without a limit, by some backends
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
)

_GRANULE = 2 * MIB
"""CUDA gives physical memory in such pieces (`cuMemGetAllocationGranularity`), to which a driver
may round a limit up."""


def is_held(asked: int | None, found: int | None) -> bool:
    """Whether *found* is the limit that was *asked*, to the byte or rounded up to a granule."""
    if asked is None or found is None:
        return asked is found
    return found in (asked, -(-asked // _GRANULE) * _GRANULE)


def set_limit(handle: Any, group: Path, most_bytes: int | None) -> None:
    """Let programs in *group* have *most_bytes* of a GPU; None for any. Raises NVML's errors."""
    hard = _NO_LIMIT if most_bytes is None else most_bytes
    asked = pynvml.c_nvmlSetMemoryLimits_v1_t(os.fsencode(group), 0, hard)
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle, asked)


def limit_of(handle: Any, group: Path) -> int | None:
    """What programs in *group* may have of a GPU; None for any. Raises NVML's errors."""
    told = pynvml.c_nvmlGetMemoryLimits_v1_t(os.fsencode(group))
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, told)
    except pynvml.NVMLError as error:
        if error.value in _NONE_THERE:
            return None
        raise
    return None if told.hardLimit == _NO_LIMIT else int(told.hardLimit)
