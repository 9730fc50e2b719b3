"""How much disk a run has taken: what lies below its directories, added up a little at a time."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

from headway.clock import Clock
from headway.policy.disk import DiskUse

_BLOCK_BYTES = 512
"""Unit of `st_blocks`, whatever the file system's own."""


def entries(roots: Sequence[Path]) -> Iterator[int]:
    """Bytes that each thing below *roots* takes on the disk, one after the other.

    No link is followed, nor another file system entered; a file of several
    names counts once. What vanishes meanwhile, or may not be read, counts nothing.
    """
    known: set[tuple[int, int]] = set()
    for root in roots:
        with suppress(OSError):
            device = os.lstat(root).st_dev
            for stat in _below(os.fspath(root), device):
                name = (stat.st_dev, stat.st_ino)
                if stat.st_nlink > 1 and not S_ISDIR(stat.st_mode):
                    if name in known:
                        continue
                    known.add(name)
                yield stat.st_blocks * _BLOCK_BYTES


def _below(root: str, device: int) -> Iterator[os.stat_result]:
    folders = [root]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as found:
            for entry in found:
                with suppress(OSError):
                    stat = entry.stat(follow_symlinks=False)
                    if stat.st_dev != device:
                        continue
                    if S_ISDIR(stat.st_mode):
                        folders.append(entry.path)
                    yield stat


def used_bytes(*roots: Path) -> int:
    """What all of *roots* take on the disk."""
    return sum(entries(roots))


class DiskMeter:
    """Measures some places again and again, without ever taking long.

    Args:
        clock: Tells when a look has taken long enough.
        places: What each is called → gives its directories.
    """

    def __init__(self, clock: Clock, places: Mapping[str, Callable[[], Sequence[Path]]]) -> None:
        self._clock = clock
        self._places = places
        self._known = dict.fromkeys(places, 0)
        self._counted = dict.fromkeys(places, 0)
        self._walk = self._entries()
        self.peak_bytes = 0
        """Most that all places had together."""

    def look(self, budget_s: float = 0.1) -> tuple[DiskUse, ...]:
        """What the places have: by the last full count, or by this one where that is more."""
        end_s = self._clock.monotonic_s() + budget_s
        for number, (name, size) in enumerate(self._walk):
            self._counted[name] += size
            if number % 256 == 255 and self._clock.monotonic_s() > end_s:
                break  # it goes on there with the next look
        else:
            self._known, self._counted = self._counted, dict.fromkeys(self._places, 0)
            self._walk = self._entries()
        highest = {name: max(self._known[name], self._counted[name]) for name in self._places}
        self.peak_bytes = max(self.peak_bytes, sum(highest.values()))
        return tuple(
            DiskUse(name, highest[name], disk.free, disk.total)
            for name, folders in self._places.items()
            if (disk := _disk(folders())) is not None
        )

    def look_at_all(self) -> tuple[DiskUse, ...]:
        """One full count, however long it takes."""
        self._walk, self._counted = self._entries(), dict.fromkeys(self._places, 0)
        return self.look(float("inf"))

    def _entries(self) -> Iterator[tuple[str, int]]:
        for name, folders in self._places.items():
            for size in entries(folders()):
                yield name, size


def _disk(folders: Sequence[Path]) -> "shutil._ntuple_diskusage | None":
    for folder in folders:
        try:
            return shutil.disk_usage(folder)
        except OSError:
            continue
    return None
