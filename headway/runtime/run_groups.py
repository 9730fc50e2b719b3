"""The control groups around the containers of one site: what they weigh, and what they used."""

import logging
import math
import os
import stat
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from headway.cgroups import Cgroups, GroupReading
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import Usage


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """What a container held at most, as far as its readings tell.

    The kernel's own peak counts page cache, which is whatever was free: a first start that reads
    its libraries from disk peaks at twice the second one. A container is killed only for what
    cannot be dropped: anonymous memory, files in shared memory, and the kernel's own.
    """

    highest_bytes: int = 0
    """Most at once that could not be dropped."""
    cache_bytes: int = 0
    """Most at once that could."""
    kernel_peak_bytes: int = 0
    """The kernel's peak at the newest reading."""
    newest: GroupReading | None = None

    def after(self, reading: GroupReading) -> "MemoryPeak":
        """What is known with one more *reading*.

        Where the kernel's peak has risen since the reading before, it was
        reached in between: nearly all that can be dropped now was there
        then, so what exceeds it was needed, however short the moment. Cache
        that went meanwhile makes this too much, never too little.
        """
        peak, used = reading.peak_bytes or 0, reading.used_bytes or 0
        newest_bytes = peak if peak > self.kernel_peak_bytes else used
        return MemoryPeak(
            highest_bytes=max(self.highest_bytes, newest_bytes - reading.droppable_bytes),
            cache_bytes=max(self.cache_bytes, reading.droppable_bytes),
            kernel_peak_bytes=max(self.kernel_peak_bytes, peak),
            newest=reading,
        )

    def usage(self) -> Usage:
        """The same as a runtime reports it."""
        if self.newest is None:
            return Usage()
        peak, used = self.newest.peak_bytes, self.newest.used_bytes
        known = peak is not None or used is not None
        return Usage(
            host_peak_bytes=self.highest_bytes if known else None,
            host_cache_bytes=self.cache_bytes if known else None,
            host_used_bytes=None if used is None else max(used - self.newest.droppable_bytes, 0),
            cpu_s=self.newest.cpu_s,
        )


log = logging.getLogger(__name__)

ABOVE = "/headway"
"""The control group that has those of containers, of every site of this machine."""
_MAY_BE_LIMITED = 0o1755
"""Mode of a group that a driver may limit: only for these NVML is started at their end, which
takes seconds. Any process can read it, also after whoever set the limit was killed."""


class RunGroups:
    """A control group for each container of a site, which outlives it.

    The CPUs of a lease are a weight: what several want is shared in proportion to them, and what
    is idle goes to whoever can use it. Weights compare the groups that are beside each other, so
    the one above all of them weighs as well.

    Args:
        site: Names the site's groups.
        reserve_cpus: Held back on this node from runs, for what runs outside of the groups.
        let_go: Is told, before it is removed, of each group that `gpu_group` was asked for: the
            directory of version 2.
    """

    def __init__(
        self,
        site: str,
        reserve_cpus: float = 0.0,
        let_go: Callable[[Path], None] = lambda _folder: None,
    ) -> None:
        self.cgroups = Cgroups()
        self._let_go = let_go
        self._prefix = f"{site}-"
        self._reserve_cpus = reserve_cpus

    def path(self, name: str) -> str:
        """The group of container *name*."""
        return f"{ABOVE}/{self._prefix}{name}"

    def weigh(self, name: str, cpus: float) -> bool:
        """Make the group of container *name*, to weigh *cpus*; False where that cannot be.

        Whatever else is at the top of the machine's groups weighs as one CPU there (or as a
        program each), so against it all runs together weigh what leaves it the reserve, or about
        one CPU where none is set.
        """
        others = max(self._reserve_cpus, 1.0)
        runs = max((os.cpu_count() or 1) - self._reserve_cpus, 1.0)
        try:
            self.cgroups.weigh(ABOVE, runs / others)
            self.cgroups.weigh(self.path(name), cpus)
        except OSError as error:
            log.warning("the CPUs of container %s are no weight: %s", name, error)
            return False
        return True

    def doors(self, name: str, cpus: float | None, most_bytes: float) -> list[Path]:
        """Make the groups of container *name*; the files by which its program joins them.

        One of them can be frozen, and bounds all of its memory: also what its watchdog does not
        see, such as files in memory that no process has mapped.

        Args:
            name: The container.
            cpus: What they weigh; None for no weight.
            most_bytes: Of memory; infinity where nothing is known of it.
        """
        group, found = self.path(name), list[Path | None]()
        if cpus is not None and self.weigh(name, cpus):
            found.append(self.cgroups.door(group))
        if self.cgroups.writable():
            try:
                if most_bytes < math.inf:
                    found.append(self.cgroups.limit_memory(group, int(most_bytes)))
            except OSError as error:
                log.warning("container %s's memory is held by its watchdog alone: %s", name, error)
            with suppress(OSError):
                found.append(self.cgroups.freezable(group))
        if (unified := self.cgroups.unified_folder(group)) is not None and unified.is_dir():
            found.append(unified / "cgroup.procs")
        return list(dict.fromkeys(each for each in found if each is not None))

    def gpu_group(self, name: str) -> Path | None:
        """Make the group by which a driver limits what container *name* takes of GPUs."""
        if not self.cgroups.writable():
            return None
        try:
            folder = self.cgroups.have_unified(self.path(name))
            if folder is not None:
                folder.chmod(_MAY_BE_LIMITED)
            return folder
        except OSError as error:
            log.warning("container %s has no group for limits of GPUs: %s", name, error)
            return None

    def limit_memory(self, name: str, most_bytes: int) -> None:
        """Have the group of container *name* hold *most_bytes* from now on.

        Raises:
            OSError: The kernel does not allow it.
        """
        self.cgroups.limit_memory(self.path(name), most_bytes)

    def limit_connections(self, name: str, inner: str, most_bytes: int) -> None:
        """Have what waits in connections of container *name* take so much beside its memory.

        Before it starts, in the group *inner* that the engine is about to use: what was opened
        before counts for nobody.
        """
        try:
            self.cgroups.limit_connections(f"{self.path(name)}/{inner}", most_bytes)
        except OSError as error:
            log.warning("the connections of container %s have no bound: %s", name, error)

    def frozen(self, name: str) -> AbstractContextManager[bool]:
        """Nothing in the group of container *name* runs meanwhile; False where that cannot be."""
        return self.cgroups.frozen(self.path(name))

    def thaw(self, name: str) -> None:
        """Have it run again, also where who froze it is gone: else no signal reaches it."""
        self.cgroups.thaw(self.path(name))

    def remove(self, name: str) -> None:
        """Remove the group of container *name*, which is gone. Idempotent."""
        try:
            self._remove(name)
        except OSError as error:
            raise RuntimeFailure(
                f"container {name} is removed, but not its control group ({error.strerror}): "
                "one of its processes may live on, as in state D; look for it with ps"
            ) from error

    def _remove(self, name: str) -> None:
        folder = self.cgroups.unified_folder(self.path(name))
        if folder is not None and folder.is_dir() and folder.stat().st_mode & stat.S_ISVTX:
            self._let_go(folder)
        self.cgroups.remove(self.path(name))

    def left(self) -> set[str]:
        """Names of the containers of which there are groups."""
        own = self.cgroups.below(ABOVE)
        return {each.removeprefix(self._prefix) for each in own if each.startswith(self._prefix)}

    def sweep(self, known: Callable[[], Container[str]]) -> None:
        """Remove the groups of containers that are not *known*: others removed them.

        *known* is asked after it was seen which groups there are: what is created meanwhile stays.
        """
        left = self.left()
        there = known() if left else ()
        for name in sorted(each for each in left if each not in there):
            try:
                self._remove(name)
            except OSError as error:
                log.warning("control group %s stays: %s", self.path(name), error.strerror)
            else:
                log.warning("control group %s was left: removed", self.path(name))
