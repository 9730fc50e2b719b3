"""What a job's processes and its GPUs use, as the wrapper measures it on a machine of an engine.

It needs the standard library of Python 3.8 alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress

GPU_EVERY_S = 10.0


def descendants(pid: int) -> list[int]:
    """That process and all that it started."""
    parents = {}
    for each in os.listdir("/proc"):
        if each.isdigit():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{each}/stat") as file:
                parents[int(each)] = int(file.read().rpartition(")")[2].split()[1])
    found: list[int] = []
    left = [pid]
    while left:
        found.append(left.pop())
        left += [child for child, parent in parents.items() if parent == found[-1]]
    return found


def memory_bytes(pids: set[int]) -> int:
    """What these processes hold now, shared memory counted once."""
    held = 0
    for each in pids:
        with suppress(OSError, ValueError), open(f"/proc/{each}/smaps_rollup") as file:
            held += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return held * 1024


def out_of_memory_kills() -> int:
    """How often the kernel killed something in this job's control group for its memory."""
    with suppress(OSError, ValueError):
        with open("/proc/self/cgroup") as file:
            place = file.read().strip().rpartition(":")[2]
        with open(f"/sys/fs/cgroup{place}/memory.events") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


class Gpus:
    """What the GPUs that this job sees do, where there is an nvidia-smi."""

    def __init__(self) -> None:
        self.ids = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self.program = shutil.which("nvidia-smi") if self.ids else None
        self.at = 0.0
        self.peak_bytes: int | None = None
        self.utilisations: list[float] = []

    def look(self, now_s: float) -> None:
        """Measure, if it is time."""
        if self.program is None or now_s - self.at < GPU_EVERY_S:
            return
        self.at = now_s
        asked = [self.program, f"--id={self.ids}"]
        asked += ["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
        with suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
            answer = subprocess.check_output(asked, stderr=subprocess.DEVNULL, timeout=5)
            rows = [line.split(",") for line in answer.decode().splitlines()]
            self.utilisations += [float(row[0]) / 100 for row in rows]
            self.peak_bytes = max([self.peak_bytes or 0, *(int(row[1]) << 20 for row in rows)])

    def mean(self) -> float | None:
        """Mean utilisation until now; None where nothing was measured."""
        return sum(self.utilisations) / len(self.utilisations) if self.utilisations else None
