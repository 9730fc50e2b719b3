"""Errors of NVML: what a GPU or driver does not offer, and a GPU that is lost."""

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")
LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
"""Errors of one GPU that leave the others alone."""
UNANSWERED = (
    pynvml.NVML_ERROR_TIMEOUT,
    pynvml.NVML_ERROR_IN_USE,
    pynvml.NVML_ERROR_MEMORY,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
    pynvml.NVML_ERROR_NOT_READY,
    pynvml.NVML_ERROR_UNKNOWN,
)
"""Errors that say nothing of what is offered: the same call may work a moment later."""
NOT_OFFERED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NO_DATA,
)
"""Errors by which a GPU or driver says that it does not tell."""


def offered(read: Callable[[], T]) -> T | None:
    """*read*, or None where this GPU or driver does not offer it."""
    try:
        return read()
    except pynvml.NVMLError as error:
        if error.value in NOT_OFFERED:
            return None
        raise


def told(read: Callable[[], T]) -> T | None:
    """*read*, or None where it fails and the GPU is not lost."""
    try:
        return read()
    except pynvml.NVMLError as error:
        if error.value in LOST:
            raise
        return None


def words(error: Any) -> str:
    """An error of NVML in a message."""
    return f"NVML error {error.value}: {error}"
