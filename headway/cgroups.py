"""The control groups of this machine, of version 1 and 2 alike: limits, use and processes.

A process is bound by the limits of its own group and of all groups around it.
What a container uses is read from a parent group that headway makes for it: the
engine's own group vanishes with the container's exit, while the parent group
outlives it and keeps the kernel's peak, which no streamed reading catches.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from headway import cgroup_files as files
from headway.cgroup_files import MemoryLimit

_FREEZE_S = 1.0

_SHARES_OF_A_CPU, _LEAST_SHARES, _MOST_SHARES = 1024, 2, 262_144
_WEIGHT_OF_A_CPU, _LEAST_WEIGHT, _MOST_WEIGHT = 100, 1, 10_000


def cpu_shares(cpus: float) -> int:
    """What *cpus* weigh against others, as version 1 counts it: 1024 are what nobody has set."""
    return min(max(round(_SHARES_OF_A_CPU * cpus), _LEAST_SHARES), _MOST_SHARES)


def cpus_of_shares(shares: int) -> float:
    """The CPUs that these `cpu_shares` are; one for 0, which is none set."""
    return (shares or _SHARES_OF_A_CPU) / _SHARES_OF_A_CPU


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A control group at one moment. None: this kernel does not tell."""

    peak_bytes: int | None
    """The kernel's peak until now, page cache included."""
    used_bytes: int | None
    """In use now, page cache included."""
    droppable_bytes: int
    """Of what is in use now, what the kernel takes back when memory is short."""
    cpu_s: float | None


class Cgroups:
    """The control groups that one process sees. Without any (macOS), nothing limits it.

    Args:
        proc: The process's directory in /proc; its `cgroup` and `mountinfo` are read.
    """

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._own = files.groups_of(proc)
        # By controller, and version 2 by the empty name: the group at the top, and where it is.
        self._mounts: dict[str, tuple[str, Path]] = {}
        for line in files.text(proc / "mountinfo").splitlines():
            before, _, after = line.partition(" - ")
            kind, *_, options = after.split()
            if kind in ("cgroup", "cgroup2"):
                _, _, _, root, mount_point, *_ = before.split()
                names = [""] if kind == "cgroup2" else options.split(",")
                self._mounts |= dict.fromkeys(names, (root, Path(mount_point)))

    # ----- what limits this process -----

    def memory_limits(self) -> list[MemoryLimit]:
        """Every memory limit that binds this process, innermost first; read anew."""
        limits = [files.memory_limit(folder, files.V1) for folder in self._around("memory")]
        limits += [files.memory_limit(folder, files.V2) for folder in self._around("")]
        return [limit for limit in limits if limit is not None]

    def cpu_quota(self) -> float | None:
        """CPUs' worth of time this process may use; None where nothing limits it."""
        told = [files.text(folder / "cpu.max").split() for folder in self._around("")]
        told += [
            [files.text(folder / f"cpu.cfs_{what}_us").strip() for what in ("quota", "period")]
            for folder in self._around("cpu")
        ]
        quotas = [int(each[0]) / int(each[1]) for each in told if each and each[0].isdecimal()]
        return min(quotas, default=None)

    def _around(self, controller: str) -> Iterator[Path]:
        """The directory of this process's group and those above it, up to the mount point."""
        if controller not in self._own or controller not in self._mounts:
            return
        root, mount_point = self._mounts[controller]
        group = PurePosixPath(self._own[controller])
        # Inside a container the path may name a group that is not mounted here:
        # then the mount point is all there is to see, and is the container's own.
        below = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
        for each in (below, *below.parents):
            yield mount_point / each

    # ----- a container's group -----

    @property
    def _memory(self) -> str:
        """The controller that accounts for memory; version 2 beside version 1 has none."""
        return "memory" if "memory" in self._mounts else ""

    def _folder(self, controller: str, group: str) -> Path | None:
        found = self._mounts.get(controller)
        return None if found is None else found[1] / group.lstrip("/")

    def writable(self) -> bool:
        """May this process make groups?"""
        root = self._folder(self._memory, "/")
        return root is not None and os.geteuid() == 0 and os.access(root, os.W_OK)

    def weighable(self) -> bool:
        """May this process make groups that share the CPUs by weight?"""
        root = self._cpu_folder("/")
        return root is not None and os.geteuid() == 0 and os.access(root, os.W_OK)

    def _cpu_folder(self, group: str) -> Path | None:
        return self._folder("cpu" if "cpu" in self._mounts else "", group)

    def weigh(self, group: str, cpus: float) -> None:
        """Have *group*, made where need be, weigh *cpus* against the groups beside it.

        A group that nobody has weighed counts as one CPU. Weights say how CPU time that is wanted
        by several is shared; what is idle goes to whoever can use it.

        Raises:
            OSError: The kernel does not allow it.
        """
        folder = self._cpu_folder(group)
        if folder is None:
            return
        files.have_passable(folder, group)
        if "cpu" in self._mounts:
            (folder / "cpu.shares").write_text(str(cpu_shares(cpus)))
            return
        self._have_controller(folder, "cpu")
        weight = min(max(round(_WEIGHT_OF_A_CPU * cpus), _LEAST_WEIGHT), _MOST_WEIGHT)
        (folder / "cpu.weight").write_text(str(weight))

    def _have_controller(self, folder: Path, name: str) -> None:
        """Have version 2 account for *name* in *folder*."""
        root = self._mounts[""][1]
        around = list(folder.relative_to(root).parents)  # innermost first
        for each in reversed(around):
            (root / each / "cgroup.subtree_control").write_text(f"+{name}")

    def limit_memory(self, group: str, most_bytes: int) -> Path | None:
        """Have *group*, made where need be, hold *most_bytes*, swap included.

        Returns:
            The file by which a process joins it; None without groups.

        Raises:
            OSError: The kernel does not allow it.
        """
        folder, names = self._folder(self._memory, group), files.V1 if self._memory else files.V2
        if folder is None:
            return None
        files.have_passable(folder, group)
        if names is files.V2:
            self._have_controller(folder, "memory")
        self.limit_connections(group, most_bytes)
        limits = {names.limit: str(most_bytes)}
        if (folder / names.swap).exists():  # not where the kernel does not account for swap
            limits[names.swap] = "0" if names is files.V2 else str(most_bytes)
        # Of version 1 memory with swap may never be less than memory alone.
        rises = most_bytes > (files.number(folder / names.limit) or 0)
        for file in reversed(limits) if rises else limits:
            (folder / file).write_text(limits[file])
        return folder / "cgroup.procs"

    def limit_connections(self, group: str, most_bytes: int) -> None:
        """Have what waits in connections of *group* take *most_bytes*, beside its memory.

        Only version 1 needs it, and only of what is opened from then on: made where need be.

        Raises:
            OSError: The kernel does not allow it.
        """
        folder = self._folder("memory", group)
        if folder is not None:
            files.have_passable(folder, group)
            if (folder / files.V1_CONNECTIONS).exists():  # not in each kernel
                (folder / files.V1_CONNECTIONS).write_text(str(most_bytes))

    @property
    def is_unified(self) -> bool:
        """Is version 2 all that there is?"""
        return set(self._mounts) == {""}

    def unified_folder(self, group: str) -> Path | None:
        """Where *group* is in version 2, if it is there; None without version 2."""
        return self._folder("", group)

    def have_unified(self, group: str) -> Path | None:
        """Have *group* in version 2, where GPUs' drivers look for it, with account of their memory.

        Raises:
            OSError: The kernel does not allow it.
        """
        folder = self._folder("", group)
        if folder is not None:
            files.have_passable(folder, group)
            if "dmem" in files.text(self._mounts[""][1] / "cgroup.controllers").split():
                self._have_controller(folder, "dmem")
        return folder

    def memory_kills(self, group: str) -> int:
        """How many processes of *group* the kernel has killed at its memory limit."""
        folder, names = self._folder(self._memory, group), files.V1 if self._memory else files.V2
        return 0 if folder is None else files.table(folder / names.kills).get("oom_kill", 0)

    def door(self, group: str) -> Path | None:
        """The file by which a process joins *group* for CPU time alone, as version 1 has it.

        With version 2 for all that is accounted for there.
        """
        folder = self._cpu_folder(group)
        return None if folder is None else folder / "cgroup.procs"

    def freezable(self, group: str) -> Path | None:
        """Have *group*, made where need be; the file by which a process joins it to be `frozen`."""
        folder = self._freezer(group)
        if folder is None:
            return None
        files.have_passable(folder, group)
        return folder / "cgroup.procs"

    def _freezer(self, group: str) -> Path | None:
        return self._folder("freezer" if "freezer" in self._mounts else "", group)

    @contextmanager
    def frozen(self, group: str) -> Iterator[bool]:
        """Nothing in *group* runs meanwhile; False where that cannot be had."""
        folder, gives_up_s = self._freezer(group), time.monotonic() + _FREEZE_S
        is_frozen = folder is not None and files.set_frozen(folder, freeze=True)
        while is_frozen and folder is not None and not files.has_frozen(folder):
            time.sleep(0.001)
            is_frozen = time.monotonic() < gives_up_s
        try:
            yield is_frozen
        finally:
            self.thaw(group)

    def thaw(self, group: str) -> None:
        """Have *group* run, also where who froze it is gone."""
        if (folder := self._freezer(group)) is not None:
            files.set_frozen(folder, freeze=False)

    def group_of(self, pid: int) -> str | None:
        """Path of the group that accounts for the memory of *pid*; None when it is gone."""
        return files.groups_of(Path(f"/proc/{pid}")).get(self._memory)

    def pids(self, group: str) -> tuple[int, ...]:
        """Processes in *group* and below it."""
        folder = self._folder(self._memory, group)
        # os.walk, unlike rglob, takes no offence at a group that vanishes meanwhile.
        below = os.walk(folder) if folder is not None else ()
        return tuple(
            int(pid)
            for each, _, _ in below
            for pid in files.text(Path(each, "cgroup.procs")).split()
        )

    def read(self, group: str) -> GroupReading | None:
        """What *group* and all below it hold; None when there is no such group."""
        folder = self._folder(self._memory, group)
        if folder is None or not folder.is_dir():
            return None
        names = files.V1 if self._memory else files.V2
        cpu_us = files.table(folder / "cpu.stat").get("usage_usec")
        cpu_s = None if cpu_us is None else cpu_us / 1e6
        accounts = self._folder("cpuacct", group)
        if names is files.V1 and accounts is not None:
            cpu_ns = files.number(accounts / "cpuacct.usage")
            cpu_s = None if cpu_ns is None else cpu_ns / 1e9
        return GroupReading(
            peak_bytes=files.number(folder / names.peak),
            used_bytes=files.number(folder / names.used),
            droppable_bytes=files.read_droppable(folder, names),
            cpu_s=cpu_s,
        )

    def below(self, group: str) -> set[str]:
        """Names of the groups in *group*, of every hierarchy; none where there is no such group."""
        roots = {mount_point for _, mount_point in self._mounts.values()}
        walks = (next(os.walk(root / group.lstrip("/")), None) for root in roots)
        return {name for found in walks if found is not None for name in found[1]}

    def remove(self, group: str) -> None:
        """Remove *group* and what is below it from every hierarchy. Idempotent.

        The kernel may hold an empty group for a moment after its last
        process; it is tried for a second.
        """
        for root in {mount_point for _, mount_point in self._mounts.values()}:
            for folder, _, _ in os.walk(root / group.lstrip("/"), topdown=False):
                files.remove_folder(Path(folder))
