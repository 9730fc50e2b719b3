"""Locks between processes of one node; the kernel frees those of a process that died."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.clock import Clock
from headway.durable import lock_file

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
        while (descriptor := lock_file(self._folder / name)) is None:
            waiting()
            self._clock.sleep(_POLL_S)
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def held_if_free(self, name: str) -> Iterator[bool]:
        """Hold the lock if nobody has it; the block is told whether it does."""
        descriptor = lock_file(self._folder / name)
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
