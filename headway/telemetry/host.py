"""The host: memory, CPUs and disk, within the limits this process lives under."""

import os
from pathlib import Path
from typing import Any

import psutil

from headway.cgroups import Cgroups
from headway.model.node import HostReading

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class NodeHost:
    """The host of this node (port `HostSensors`).

    Args:
        disk: Directory whose file system is watched, headway's home; it need
            not exist yet.
        proc: This process's directory in /proc.
    """

    def __init__(self, disk: Path, proc: Path = Path("/proc/self")) -> None:
        self._disk = disk
        self._cgroups = Cgroups(proc)
        self._times = psutil.cpu_times()

    def cpus(self) -> float:
        """Logical CPUs this process may use: affinity, and the cgroups' quota where smaller."""
        quota = self._cgroups.cpu_quota()
        return min(float(len(os.sched_getaffinity(0))), quota or float("inf"))

    def read(self) -> HostReading:
        """The host now; `cpu_frac` since the reading before, or since this object was made."""
        machine = psutil.virtual_memory()
        limits = self._cgroups.memory_limits()
        total = min([machine.total, *(limit.limit_bytes for limit in limits)])
        available = min([machine.available, *(limit.available_bytes for limit in limits)])
        times, self._times = self._times, psutil.cpu_times()
        return HostReading(
            memory_bytes=total,
            used_bytes=max(0, total - available),
            cpu_frac=_busy_frac(times, self._times),
            disk_free_bytes=psutil.disk_usage(str(_existing(self._disk))).free,
        )


def boot_id() -> str:
    """Names this boot of the machine: another one means that no process of before lives."""
    return BOOT_ID.read_text().strip()


def _busy_frac(before: Any, after: Any) -> float:
    """Share of CPU time spent working between two `psutil.cpu_times`, 0..1."""
    # guest time is contained in user time already
    names = [name for name in after._fields if not name.startswith("guest")]
    spent = {name: getattr(after, name) - getattr(before, name) for name in names}
    total = sum(spent.values())
    idle = spent["idle"] + spent.get("iowait", 0.0)
    return min(1.0, max(0.0, 1 - idle / total)) if total > 0 else 0.0


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
