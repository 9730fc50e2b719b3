"""Locks between processes of one node; the kernel frees those of a process that died."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.clock import Clock

_POLL_S = 0.1


class FileLocks:
    """Exclusive locks by name, one file each (flock), also between threads.

    Args:
        folder: Where the lock files lie; on a local file system.
        clock: Waits between two attempts.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    @contextmanager
    def held(self, name: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock, however long it takes; *waiting* is called meanwhile and may raise."""
        while (descriptor := self._try(name)) is None:
            waiting()
            self._clock.sleep(_POLL_S)
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def held_if_free(self, name: str) -> Iterator[bool]:
        """Hold the lock if nobody has it; the block is told whether it does."""
        descriptor = self._try(name)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def forget(self, name: str) -> None:
        """Remove the lock's file. Only while holding the lock."""
        (self._folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Every lock that has a file."""
        return sorted(path.name for path in self._folder.iterdir())

    def _try(self, name: str) -> int | None:
        path = self._folder / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been removed between open and flock: then this
            # lock is on a file that nobody else will ever find.
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
        return None
