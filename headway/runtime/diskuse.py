"""How much disk a run has taken: what lies below its directories, and what it holds open."""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from ctypes import CDLL
from dataclasses import dataclass
from pathlib import Path
from stat import S_IFDIR, S_IFMT, S_IFREG, S_ISDIR, S_ISREG, S_ISSOCK
from threading import Thread, get_native_id

from headway.clock import Clock
from headway.policy.disk import LEAST_BYTES, DiskUse
from headway.runtime import in_flight, logfile
from headway.runtime.errors import EngineUnreachable
from headway.runtime.process import proctree
from headway.trees import below, stats_below

_BLOCK_BYTES = 512
"""Unit of `st_blocks`, whatever the file system's own."""
_REMOVED = "in files that it removed and holds open"
_PAUSE_PER_CPU_S, _GROWING_PAUSE_PER_CPU_S = 4.0, 0.5
"""Between two counts; they take a fifth of a CPU, and more of one while there is ever more."""
_LIBC = CDLL(None)
_KCMP, _KCMP_FILES = {"x86_64": 312, "aarch64": 272}, 2
_MOST_OPEN = 500_000
"""Open files of one run that are looked at."""
_MOST_BLIND = 3
"""Counts one after the other that could not see all."""
_HIDDEN_BYTES = 16 << 20
"""So much more than was counted may the disks lose, before those who write are held for a count."""
_MOST_FROZEN_S = 3.0
_PAUSE_PER_FROZEN_CPU_S, _PAUSE_PER_FROZEN_S = 50.0, 5.0
"""They are held for a fiftieth of the time, however much others write on these disks; for a sixth
at most, where the machine has so much to do that a count has to wait."""
_NICE = -10
"""A machine that is full of work must not keep those from being stopped who fill its disk."""


def entries(roots: Sequence[Path]) -> Iterator[int]:
    """Bytes that *roots* and each thing below them take on the disk, one after the other.

    Each name counts `LEAST_BYTES` at least, and the content of a file of several names once. No
    link is followed, nor another file system entered. What vanishes meanwhile, or may not be read,
    counts nothing.
    """
    known: set[tuple[int, int]] = set()
    for root in roots:
        with suppress(OSError):
            yield root.lstat().st_blocks * _BLOCK_BYTES
            for stat in stats_below(root):
                size = stat.st_blocks * _BLOCK_BYTES
                if stat.st_nlink > 1 and not S_ISDIR(stat.st_mode):
                    name = (stat.st_dev, stat.st_ino)
                    size = 0 if name in known else size
                    known.add(name)
                yield max(size, LEAST_BYTES)


def removed_but_open(pids: Iterable[int], beside: Sequence[Path]) -> Iterator[int | None]:
    """Bytes on the disk of files without a name that *pids* hold, each once.

    No walk finds them, and they take their place until the last process lets go: of what it has
    open or mapped, or was sent and has not received. None stands for what cannot be looked at.

    Args:
        pids: Processes of this machine; one that is gone, or not this one's to look at, has none.
        beside: Files on the disks of these, or of the processes' own root, count. What lies
            elsewhere is no disk: memory files, shared memory.
    """
    known: set[tuple[int, int]] = set()
    disks, left = set(_devices(beside)), _MOST_OPEN
    for pid in pids:
        devices = disks.union(_devices((Path(f"/proc/{pid}/root"),)))
        for stat in (held for thread in _with_own_files(pid) for held in _held_by(thread)):
            left -= 1
            if left < 0:
                yield None
                return
            if stat is None:
                yield None
                continue
            name = (stat.st_dev, stat.st_ino)
            # A folder keeps the blocks of the names that it had.
            gone = S_IFMT(stat.st_mode) in (S_IFREG, S_IFDIR) and stat.st_nlink == 0
            if gone and stat.st_dev in devices and name not in known:
                known.add(name)
                yield stat.st_blocks * _BLOCK_BYTES


def _with_own_files(pid: int) -> Iterator[int]:
    """Threads of *pid*: of those that follow each other and share their open files, one."""
    before = None
    for thread in proctree.threads(pid):
        if before is None or not _share_files(before, thread):
            yield thread
            before = thread


def _share_files(one: int, other: int) -> bool:
    """Whether two threads do; False where the kernel does not tell."""
    number = _KCMP.get(os.uname().machine)
    return number is not None and _LIBC.syscall(number, one, other, _KCMP_FILES, 0, 0) == 0


def _held_by(pid: int) -> Iterator[os.stat_result | None]:
    for link in ("exe", "cwd"):
        with suppress(OSError):
            yield Path(f"/proc/{pid}/{link}").stat()
    folders = ["fd"]
    with suppress(OSError):  # to look at each mapping takes four times as long
        folders += ["map_files"] * (b" (deleted)" in Path(f"/proc/{pid}/maps").read_bytes())
    for folder in folders:
        with suppress(OSError), os.scandir(f"/proc/{pid}/{folder}") as found:
            for entry in found:
                with suppress(OSError):
                    stat = entry.stat()
                    yield stat
                    if S_ISSOCK(stat.st_mode) and in_flight.pending(pid, int(entry.name)):
                        yield from in_flight.files_in(pid, int(entry.name))
                    elif not S_IFMT(stat.st_mode) and in_flight.pending(pid, int(entry.name)):
                        yield None  # an io_uring


def _devices(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        with suppress(OSError):
            yield path.stat().st_dev


def used_bytes(*roots: Path) -> int:
    """What all of *roots* take on the disk."""
    return sum(entries(roots))


@dataclass(slots=True)
class _Taken:
    bytes: int = 0
    files: int = 0


_Count = dict[str, _Taken]


class DiskMeter:
    """Measures some places again and again, in a thread of its own: nobody waits for it.

    Args:
        clock: Tells when to begin again.
        places: What each is called → gives its directories.
        frozen: While it is entered and gives True nobody writes there. A count in which folders
            are moved misses them; one that would explain less than the disks have lost is done
            again so.
    """

    def __init__(
        self,
        clock: Clock,
        places: Mapping[str, Callable[[], Sequence[Path]]],
        frozen: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(False),
    ) -> None:
        self._clock = clock
        self._places = places
        self._frozen = frozen
        self._known, self._counted = self._nothing(), self._nothing()
        self._told = self._known
        self._counting = Thread()
        self._next_s = 0.0
        self._next_frozen_s = 0.0
        self._explained: tuple[int, int] | None = None
        """By how much more was lost than counted, when nobody wrote; None before."""
        self._ends = False
        self._blind = 0
        self._is_blind = False
        self.peak_bytes = 0
        """Most that all places had together."""

    def measure(self, pids: Iterable[int] = (), wait_s: float = 0.1) -> tuple[DiskUse, ...]:
        """What the places have: by the last full count, or by this one where that is more.

        Args:
            pids: Processes that write there: what they removed and hold open counts.
            wait_s: Time after which the count goes on beside the caller.
        """
        # A count that has ended since is not replaced before somebody has heard of it.
        counts = [] if self._known is self._told else [self._known]
        if not self._counting.is_alive() and self._clock.monotonic_s() >= self._next_s:
            # A daemon, since a file system that does not answer must not keep its process.
            self._counting = Thread(target=self._count, args=(tuple(pids),), daemon=True)
            self._counting.start()
        if self._counting.ident is not None:
            self._counting.join(wait_s)
        self._told = self._known
        counts += [self._told, self._counted]
        highest = {
            name: max((of[name] for of in counts), key=lambda each: each.bytes)
            for name in self._told
        }
        self.peak_bytes = max(self.peak_bytes, sum(each.bytes for each in highest.values()))
        disks = ((name, _disk(folders())) for name, folders in self._places.items())
        uses = [
            DiskUse(name, highest[name].bytes, *disk[:2], highest[name].files, *disk[2:])
            for name, disk in disks
            if disk is not None
        ]
        removed = highest[_REMOVED].bytes
        if removed and uses:
            uses.append(DiskUse(_REMOVED, removed, uses[0].free_bytes, uses[0].total_bytes))
        return tuple(uses)

    @property
    def why_uncounted(self) -> str:
        """Why nobody can say what it takes; empty where that is known."""
        if self._blind < _MOST_BLIND:
            return ""
        return (
            "resources.disk: nobody can say how much it has used, since files wait in connections "
            f"that none of its programs accepts, or more than {_MOST_OPEN} are open; accept a "
            "connection before files are sent over it, or open fewer"
        )

    def measure_all(self) -> tuple[DiskUse, ...]:
        """One full count, however long it takes, where nobody writes any more."""
        if self._counting.ident is not None:
            self._ends = True
            self._counting.join()
        self._ends, self._next_s = False, 0.0
        return self.measure(wait_s=float(10**6))

    def give_back_unwritten(self) -> None:
        """Give the disks back what files have reserved and never written; none reads otherwise."""
        for folder in (each for folders in self._places.values() for each in folders()):
            with suppress(OSError):
                for inside, name, stat in below(folder):
                    if S_ISREG(stat.st_mode) and stat.st_blocks * _BLOCK_BYTES > LEAST_BYTES:
                        with suppress(OSError):
                            logfile.punch_unwritten(inside, name)

    def _nothing(self) -> _Count:
        return {name: _Taken() for name in (*self._places, _REMOVED)}

    def _count(self, pids: tuple[int, ...]) -> None:
        began_s = time.thread_time()
        with suppress(OSError):  # not root
            os.setpriority(os.PRIO_PROCESS, get_native_id(), _NICE)
        try:
            lost = self._lost()
            counted = self._counted_once(pids)
            if counted is not None and self._hides_some(lost, counted):
                counted = self._counted_frozen(pids, counted)
        except EngineUnreachable:  # it knows which folders they are
            return
        if counted is None:
            return
        before, now = (sum(each.bytes for each in of.values()) for of in (self._known, counted))
        self._known, self._blind = counted, self._is_blind and self._blind + 1
        factor = _GROWING_PAUSE_PER_CPU_S if now > before else _PAUSE_PER_CPU_S
        pause_s = factor * (time.thread_time() - began_s)
        self._next_s = self._clock.monotonic_s() + pause_s

    def _counted_once(self, pids: tuple[int, ...], most_s: float = math.inf) -> _Count | None:
        """What there is; None where that takes longer, or nobody waits for it any more."""
        until_s = self._clock.monotonic_s() + most_s
        self._counted = counted = self._nothing()
        self._is_blind = False
        for name, size in self._entries(pids):
            if self._ends or self._clock.monotonic_s() > until_s:
                return None
            if size is None:
                self._is_blind = True
                continue
            counted[name].bytes += size
            counted[name].files += 1
        return counted

    def _hides_some(self, lost: tuple[int, int], counted: _Count) -> bool:
        """Whether the disks lack more than when it was known what lies there, and than counted."""
        if self._explained is None:
            return True
        beyond = (
            now - then for now, then in zip(_beyond(lost, counted), self._explained, strict=True)
        )
        return max(beyond) > _HIDDEN_BYTES and self._clock.monotonic_s() >= self._next_frozen_s

    def _counted_frozen(self, pids: tuple[int, ...], seen: _Count) -> _Count:
        """What there is while nobody writes; what was *seen*, where that cannot be had."""
        began_s, began_cpu_s = self._clock.monotonic_s(), time.thread_time()
        with self._frozen() as is_frozen:
            counted = self._counted_once(pids, _MOST_FROZEN_S) if is_frozen else seen
            if counted is not None:
                self._explained = _beyond(self._lost(), counted)
        now_s = self._clock.monotonic_s()
        self._next_frozen_s = now_s + max(
            _PAUSE_PER_FROZEN_S * (now_s - began_s),
            _PAUSE_PER_FROZEN_CPU_S * (time.thread_time() - began_cpu_s),
        )
        return counted or seen

    def _lost(self) -> tuple[int, int]:
        """Bytes, and files at their least, for which the disks of all places have no room."""
        rooms = {}
        for folder in (each for folders in self._places.values() for each in folders()):
            with suppress(OSError):
                room = os.statvfs(folder)
                rooms[folder.stat().st_dev] = room.f_bfree * room.f_frsize, room.f_ffree
        return -sum(free for free, _ in rooms.values()), -sum(files for _, files in rooms.values())

    def _entries(self, pids: tuple[int, ...]) -> Iterator[tuple[str, int | None]]:
        for name, folders in self._places.items():
            for size in entries(folders()):
                yield name, size
        beside = [folder for folders in self._places.values() for folder in folders()]
        for held in removed_but_open(pids, beside):
            yield _REMOVED, held


def _beyond(lost: tuple[int, int], counted: _Count) -> tuple[int, int]:
    """How much more was *lost* than counted, in bytes: of content, and of files at their least."""
    taken = counted.values()
    lost_bytes, lost_files = lost
    return (
        lost_bytes - sum(each.bytes for each in taken),
        (lost_files - sum(each.files for each in taken)) * LEAST_BYTES,
    )


def _disk(folders: Sequence[Path]) -> tuple[int, int, int, int] | None:
    """Free and all bytes, and free and all files, of the disk of the first that is there."""
    for folder in folders:
        with suppress(OSError):
            found = os.statvfs(folder)
            return (
                found.f_bavail * found.f_frsize,
                found.f_blocks * found.f_frsize,
                found.f_favail,
                found.f_files,
            )
    return None
