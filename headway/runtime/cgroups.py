"""The control group around one container: read what it holds, remove it. Both versions.

The engine's own group for a container vanishes with its exit, and a
streamed reading misses short peaks. A parent group of our own outlives the
container, and the kernel keeps the peak in it.
"""

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from headway.runtime.held import Reading

_REMOVE_TRIES = 50
_REMOVE_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where this host's control groups are mounted."""

    unified: Path | None
    """Version 2; beside version 1 it has no controllers."""
    controllers: dict[str, Path]
    """Version 1: controller → mount point. Empty on a pure version 2 host."""

    @classmethod
    def of_this_host(cls, mounts: Path = Path("/proc/self/mounts")) -> "Hierarchy":
        """Read the mount table; an empty hierarchy where there is none (macOS)."""
        unified: Path | None = None
        controllers: dict[str, Path] = {}
        try:
            lines = mounts.read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            _, where, kind, options, *_ = line.split()
            if kind == "cgroup2":
                unified = Path(where)
            elif kind == "cgroup":
                controllers |= dict.fromkeys(options.split(","), Path(where))
        return cls(unified, controllers)

    def memory_root(self) -> Path | None:
        """Mount point of the hierarchy that accounts for memory."""
        return self.controllers.get("memory", self.unified)

    def writable(self) -> bool:
        """May this process make groups?"""
        root = self.memory_root()
        return root is not None and os.geteuid() == 0 and os.access(root, os.W_OK)

    def group_of(self, pid: int) -> str | None:
        """Path of the group that accounts for the memory of *pid*; None when it is gone."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return None
        groups: dict[str, str] = {}
        for line in lines:
            _, names, path = line.split(":", 2)
            groups |= dict.fromkeys(names.split(","), path)
        return groups.get("memory" if "memory" in self.controllers else "")

    def pids(self, group: str) -> tuple[int, ...]:
        """Processes in *group* and below it."""
        root = self.memory_root()
        if root is None:
            return ()
        found: list[int] = []
        # os.walk, unlike rglob, takes no offence at a group that vanishes meanwhile.
        for folder, _, _ in os.walk(_below(root, group)):
            found += [int(pid) for pid in (_read(Path(folder, "cgroup.procs")) or "").split()]
        return tuple(found)

    def read(self, group: str) -> Reading | None:
        """What *group* and all below it hold; None when there is no such group."""
        if "memory" in self.controllers:
            return self._read_v1(group)
        if self.unified is None or not _below(self.unified, group).is_dir():
            return None
        folder = _below(self.unified, group)
        droppable = _droppable(folder, "file", "shmem", "slab_reclaimable")
        cpu_us = _table(folder / "cpu.stat").get("usage_usec")
        return Reading(
            # memory.peak came with Linux 5.19; before it only the present is known.
            peak_bytes=_number(folder / "memory.peak"),
            used_bytes=_number(folder / "memory.current"),
            droppable_bytes=droppable,
            cpu_s=None if cpu_us is None else cpu_us / 1e6,
        )

    def _read_v1(self, group: str) -> Reading | None:
        folder = _below(self.controllers["memory"], group)
        if not folder.is_dir():
            return None
        cpu_ns = None
        if "cpuacct" in self.controllers:
            cpu_ns = _number(_below(self.controllers["cpuacct"], group) / "cpuacct.usage")
        droppable = _droppable(folder, "total_cache", "total_shmem")
        return Reading(
            peak_bytes=_number(folder / "memory.max_usage_in_bytes"),
            used_bytes=_number(folder / "memory.usage_in_bytes"),
            droppable_bytes=droppable,
            cpu_s=None if cpu_ns is None else cpu_ns / 1e9,
        )

    def exists(self, group: str) -> bool:
        """Is there such a group in any hierarchy?"""
        return any(_below(root, group).is_dir() for root in self._roots())

    def remove(self, group: str) -> None:
        """Remove *group* and what is below it from every hierarchy. Idempotent.

        The kernel may hold an empty group for a moment after its last
        process; it is tried for a second.
        """
        for root in self._roots():
            for folder, _, _ in os.walk(_below(root, group), topdown=False):
                _remove_folder(Path(folder))

    def _roots(self) -> set[Path]:
        return {*self.controllers.values(), *([self.unified] if self.unified else [])}


def _remove_folder(folder: Path) -> None:
    for tries_left in range(_REMOVE_TRIES, -1, -1):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or not tries_left:
                raise
            time.sleep(_REMOVE_PAUSE_S)
        else:
            return


def _droppable(folder: Path, files: str, shared: str, slab: str = "") -> int:
    """Page cache below *folder* that the kernel takes back when memory is short, in bytes.

    The table of a group that has just got a child can lag behind its counters
    by two seconds (seen on Linux 6.18: 40 MiB of new page cache, none of it in
    the parent's table); the child's own does not, so it is read first.
    """
    _, children, _ = next(os.walk(folder), (folder, [], []))
    tables = [_table(folder / child / "memory.stat") for child in children]
    tables.append(_table(folder / "memory.stat"))
    cache = [each.get(files, 0) - each.get(shared, 0) + each.get(slab, 0) for each in tables]
    return max(sum(cache[:-1]), cache[-1])


def _below(root: Path, group: str) -> Path:
    return root / PurePosixPath(group).relative_to("/")


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _read(path)
    return None if text is None else int(text)


def _table(path: Path) -> dict[str, int]:
    """A file of ``name value`` lines."""
    pairs = (line.split() for line in (_read(path) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
