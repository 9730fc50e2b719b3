"""The log of one attempt as a file: appended by the program, read by offset, capped by a hole.

The oldest part of a log that is over its limit is given back to the disk by
punching a hole at the front of the file. Offsets stay what they were, so a
reader that comes back late is told how much it missed.
"""

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from headway.clock import Clock
from headway.trees import opened
from headway.waits import until

_POLL_S = 0.05
BLOCK_BYTES = 4096
"""Holes begin and end at multiples of this."""

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # linux/falloc.h


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a log. Resume with `next_offset`; nothing is read twice or lost."""

    data: bytes
    next_offset: int
    skipped_bytes: int = 0
    """Bytes given up between the asked offset and the start of `data` (log limit)."""


def open_log(path: Path, owner: tuple[int, int] | None = None) -> int:
    """Open *path* for appending, made if need be; the file descriptor.

    The program of an attempt before may own the directory and have put a link or a pipe
    there: that is replaced.

    Args:
        path: The file.
        owner: uid and gid that will write; None leaves it as it is.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CREAT
    try:
        if not S_ISREG(os.lstat(path).st_mode):
            path.unlink()
            flags |= os.O_EXCL
    except FileNotFoundError:
        pass
    fd = os.open(path, flags, 0o640)
    if owner is not None and owner != (os.geteuid(), os.getegid()):
        os.fchown(fd, *owner)
    return fd


@contextmanager
def locked(path: Path, clock: Clock, within_s: float) -> Iterator[bool]:
    """Hold the lock of the log's file within the block; False where another one has it so long."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)

    def is_ours() -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    try:
        yield until(is_ours, clock, within_s, _POLL_S)
    finally:
        os.close(fd)


def read_chunk(path: Path, offset: int, limit_bytes: int) -> LogChunk:
    """At most *limit_bytes* of *path* from *offset* on.

    A file that does not exist (yet) is empty, and so is what is no file: its
    program put it there. One that is shorter than *offset* was cut by its own
    program; reading goes on at its end.
    """
    fd = opened(path, os.O_RDONLY)
    if fd is None:
        return LogChunk(b"", offset)
    try:
        while True:
            size = os.fstat(fd).st_size
            if offset >= size:
                return LogChunk(b"", min(offset, size))
            start = first_data(fd, offset, size)
            data = os.pread(fd, limit_bytes, start)
            # A hole punched meanwhile would read as zeros.
            if first_data(fd, start, size) == start:
                return LogChunk(data, start + len(data), start - offset)
    finally:
        os.close(fd)


def first_data(fd: int, offset: int, size: int) -> int:
    """Offset of the first byte at or after *offset* that is not in a hole."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        if error.errno == errno.EINVAL:  # a file system without holes
            return offset
        raise


def trim(path: Path, limit_bytes: int) -> int:
    """Give up the oldest part of *path* beyond *limit_bytes*; the bytes given up until now.

    Where the file system cannot punch holes nothing is given up.
    """
    fd = opened(path, os.O_RDWR)
    if fd is None:
        return 0
    try:
        size = os.fstat(fd).st_size
        hole_end = (size - limit_bytes) // BLOCK_BYTES * BLOCK_BYTES
        if hole_end <= 0:
            return 0
        start = first_data(fd, 0, size)
        if start < hole_end:
            punch_hole(fd, start, hole_end - start)
        return first_data(fd, 0, size)
    finally:
        os.close(fd)


def punch_unwritten(folder: int, name: str) -> None:
    """Give back what file *name* in the open *folder* has reserved and never written.

    Raises:
        OSError: It is no file, or the file system gives nothing back.
    """
    fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # what was read looks like written
        size, at = os.fstat(fd).st_size, 0
        os.ftruncate(fd, size)  # what it has beyond its end
        while at < size:
            hole = os.lseek(fd, at, os.SEEK_HOLE)
            at = first_data(fd, hole, size)
            if at > hole:
                punch_hole(fd, hole, at - hole)
    finally:
        os.close(fd)


def punch_hole(fd: int, offset: int, length: int) -> None:
    """Give the bytes back to the disk, where it can, without changing the size."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length)):
        code = ctypes.get_errno()
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(code, os.strerror(code))
