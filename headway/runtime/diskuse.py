"""How much disk a run has taken: what lies below its directories, added up a little at a time."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from headway.clock import Clock
from headway.policy.disk import DiskUse
from headway.trees import stats_below

_BLOCK_BYTES = 512
"""Unit of `st_blocks`, whatever the file system's own."""
_REMOVED = "in files that it removed and holds open"


def entries(roots: Sequence[Path]) -> Iterator[int]:
    """Bytes that each thing below *roots* takes on the disk, one after the other.

    No link is followed, nor another file system entered; a file of several
    names counts once. What vanishes meanwhile, or may not be read, counts nothing.
    """
    known: set[tuple[int, int]] = set()
    for root in roots:
        with suppress(OSError):
            for stat in stats_below(root):
                name = (stat.st_dev, stat.st_ino)
                if stat.st_nlink > 1 and not S_ISDIR(stat.st_mode):
                    if name in known:
                        continue
                    known.add(name)
                yield stat.st_blocks * _BLOCK_BYTES


def removed_but_open(pids: Iterable[int], beside: Sequence[Path]) -> Iterator[int]:
    """Bytes on the disk of files without a name that *pids* hold open or mapped, each once.

    No walk finds them, and they take their place until the last process lets go.

    Args:
        pids: Processes of this machine; one that is gone, or may not be looked at, has none.
        beside: Files on the disks of these, or of the processes' own root, count. What lies
            elsewhere is no disk: memory files, shared memory.
    """
    known: set[tuple[int, int]] = set()
    disks = set(_devices(beside))
    for pid in pids:
        devices = disks.union(_devices((Path(f"/proc/{pid}/root"),)))
        for folder in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
            with suppress(OSError), os.scandir(folder) as found:
                for entry in found:
                    size = 0
                    with suppress(OSError):
                        stat = entry.stat()
                        name = (stat.st_dev, stat.st_ino)
                        gone = S_ISREG(stat.st_mode) and stat.st_nlink == 0
                        if gone and stat.st_dev in devices and name not in known:
                            known.add(name)
                            size = stat.st_blocks * _BLOCK_BYTES
                    yield size


def _devices(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        with suppress(OSError):
            yield path.stat().st_dev


def used_bytes(*roots: Path) -> int:
    """What all of *roots* take on the disk."""
    return sum(entries(roots))


class DiskMeter:
    """Measures some places again and again, without ever taking long.

    Args:
        clock: Tells when a measurement has taken long enough.
        places: What each is called → gives its directories.
    """

    def __init__(
        self,
        clock: Clock,
        places: Mapping[str, Callable[[], Sequence[Path]]],
    ) -> None:
        self._clock = clock
        self._places = places
        self._pids: Iterable[int] = ()
        self._names = (*places, _REMOVED)
        self._known = dict.fromkeys(self._names, 0)
        self._counted = dict.fromkeys(self._names, 0)
        self._walk = self._entries()
        self.peak_bytes = 0
        """Most that all places had together."""

    def measure(self, pids: Iterable[int] = (), budget_s: float = 0.1) -> tuple[DiskUse, ...]:
        """What the places have: by the last full count, or by this one where that is more.

        Args:
            pids: Processes that write there: what they removed and hold open counts.
            budget_s: Time after which the count goes on with the next call.
        """
        self._pids = pids
        end_s = self._clock.monotonic_s() + budget_s
        for number, (name, size) in enumerate(self._walk):
            self._counted[name] += size
            if number % 256 == 255 and self._clock.monotonic_s() > end_s:
                break
        else:
            self._known, self._counted = self._counted, dict.fromkeys(self._names, 0)
            self._walk = self._entries()
        highest = {name: max(self._known[name], self._counted[name]) for name in self._names}
        self.peak_bytes = max(self.peak_bytes, sum(highest.values()))
        uses = tuple(
            DiskUse(name, highest[name], disk.free, disk.total)
            for name, folders in self._places.items()
            if (disk := _disk(folders())) is not None
        )
        removed = highest[_REMOVED]
        if not removed or not uses:
            return uses
        return (*uses, replace(uses[0], what=_REMOVED, used_bytes=removed))

    def measure_all(self) -> tuple[DiskUse, ...]:
        """One full count, however long it takes, where nobody writes any more."""
        self._walk, self._counted = self._entries(), dict.fromkeys(self._names, 0)
        return self.measure(budget_s=float("inf"))

    def _entries(self) -> Iterator[tuple[str, int]]:
        for name, folders in self._places.items():
            for size in entries(folders()):
                yield name, size
        beside = [folder for folders in self._places.values() for folder in folders()]
        for size in removed_but_open(self._pids, beside):
            yield _REMOVED, size


def _disk(folders: Sequence[Path]) -> "shutil._ntuple_diskusage | None":
    for folder in folders:
        try:
            return shutil.disk_usage(folder)
        except OSError:
            continue
    return None
