"""The limits that control groups set for this process, of version 1 and 2 alike.

A group is bound by its own limit and by those of all groups around it, so
everything here walks from the process's group up to the mounted root.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_NO_LIMIT_BYTES = 2**60
"""Version 1 writes "no limit" as a number near 2⁶³; no machine has an exbibyte."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The limit of one group and what is left of it."""

    limit_bytes: int
    available_bytes: int
    """Limit minus usage, file cache that can be dropped counted as free."""


class Cgroups:
    """The control groups of one process.

    Args:
        proc: The process's directory in /proc; its `cgroup` and `mountinfo` are read.
    """

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._v1, self._v2 = _groups(proc)

    def memory_limits(self) -> list[MemoryLimit]:
        """Every memory limit that binds this process, innermost first; read anew."""
        v1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        v2 = ("memory.max", "memory.current", "inactive_file")
        limits = [_memory_limit(group, *v1) for group in self._v1.get("memory", ())]
        limits += [_memory_limit(group, *v2) for group in self._v2]
        return [limit for limit in limits if limit is not None]

    def cpu_quota(self) -> float | None:
        """CPUs' worth of time this process may use; None where nothing limits it."""
        quotas = [_quota_v1(group) for group in self._v1.get("cpu", ())]
        quotas += [_quota_v2(group) for group in self._v2]
        return min((quota for quota in quotas if quota is not None), default=None)


def _groups(proc: Path) -> tuple[dict[str, list[Path]], list[Path]]:
    """Directories of the process's groups: of v1 by controller, and of v2."""
    v1: dict[str, list[Path]] = {}
    v2: list[Path] = []
    paths = {}
    for line in _read(proc / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))  # "" stands for version 2
    for root, mount_point, kind, options in _mounts(_read(proc / "mountinfo")):
        if kind == "cgroup2" and "" in paths:
            v2 = list(_upwards(root, mount_point, paths[""]))
        elif kind == "cgroup":
            for controller in options & paths.keys():
                v1[controller] = list(_upwards(root, mount_point, paths[controller]))
    return v1, v2


def _mounts(mountinfo: str) -> Iterator[tuple[str, Path, str, set[str]]]:
    """Root, mount point, file system type and super options of each mount (proc(5))."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) >= 5 and len(rest) >= 3:
            yield fields[3], Path(fields[4]), rest[0], set(rest[2].split(","))


def _upwards(root: str, mount_point: Path, path: str) -> Iterator[Path]:
    """The group's directory and those above it, up to the mount point."""
    group = PurePosixPath(path)
    # Inside a container the path may name a group that is not mounted here:
    # then the mount point is all there is to see, and is the container's own.
    below = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
    while True:
        yield mount_point / below
        if below == PurePosixPath():
            return
        below = below.parent


def _memory_limit(group: Path, limit: str, usage: str, cache: str) -> MemoryLimit | None:
    text = _read(group / limit).strip()
    if not text.isdecimal() or int(text) >= _NO_LIMIT_BYTES:
        return None
    used_bytes = int(_read(group / usage).strip() or 0)
    stat = dict(line.split() for line in _read(group / "memory.stat").splitlines())
    droppable_bytes = min(used_bytes, int(stat.get(cache, 0)))
    available_bytes = int(text) - (used_bytes - droppable_bytes)
    return MemoryLimit(int(text), max(0, available_bytes))


def _quota_v1(group: Path) -> float | None:
    quota = _read(group / "cpu.cfs_quota_us").strip()
    period = _read(group / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _quota_v2(group: Path) -> float | None:
    quota, _, period = _read(group / "cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _read(path: Path) -> str:
    """The file's text; empty where there is none (another version, macOS, a group just gone)."""
    try:
        return path.read_text()
    except OSError:
        return ""
