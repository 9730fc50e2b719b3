"""System calls that a program of another user is refused, as container engines refuse them.

In a user namespace it could mount what it has removed, and io_uring keeps files open in no list of
open files: neither could be counted as its disk.
"""

import ctypes
import errno
import os
import struct
from typing import NamedTuple

_IO_URING_SETUP, _CLONE3 = 425, 435
_NEW_USER = 0x10000000
_X32 = 0x40000000
_NUMBER, _ARCHITECTURE, _FLAGS = 0, 4, 16
"""Where the kernel puts a call's number, what it was compiled for, and its first argument."""
_LOAD, _EQUALS, _IS_AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_SET_FILTER, _NO_SLOWER = 1, 4


class _Machine(NamedTuple):
    architecture: int
    clone: int
    unshare: int
    seccomp: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 56, 272, 317),
    "aarch64": _Machine(0xC00000B7, 220, 97, 277),
}


def refuse() -> None:
    """Refuse them to this process and all that it starts; it has given up new privileges before.

    Programs for another architecture than the machine's own are refused every call.

    Raises:
        OSError: The kernel has no such filter.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return
    steps = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUALS, 0, 10, machine.architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_IS_AT_LEAST, 8, 0, _X32),
        (_EQUALS, 7, 0, _IO_URING_SETUP),
        (_EQUALS, 6, 0, _CLONE3),  # its flags cannot be seen; C libraries then call clone
        (_EQUALS, 1, 0, machine.clone),
        (_EQUALS, 0, 2, machine.unshare),
        (_LOAD, 0, 0, _FLAGS),
        (_HAS_BITS, 1, 0, _NEW_USER),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
    )
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    filter_ = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(machine.seccomp, _SET_FILTER, _NO_SLOWER, filter_):
        code = ctypes.get_errno()
        raise OSError(code, f"system calls cannot be filtered: {os.strerror(code)}")
