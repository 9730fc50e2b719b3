"""The processes below one process, and what they use. /proc on Linux, psutil elsewhere.

psutil would read every process of the machine at each look; a watchdog that
looks ten times a second reads only its own.
"""

import os
import sys
from pathlib import Path

import psutil

_LINUX = sys.platform.startswith("linux")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """Every live process below *pid*, without *pid* itself."""
    if not _LINUX:
        return [p.pid for p in psutil.Process(pid).children(recursive=True) if _alive(p)]
    found, todo = [], [pid]
    while todo:
        for child in _children(todo.pop()):
            todo.append(child)
            if state(child) not in ("Z", "X", ""):
                found.append(child)
    return found


def _children(pid: int) -> list[int]:
    children = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a process that ends leaves no open iterator
            text = Path(f"/proc/{pid}/task/{task}/children").read_text()
            children += [int(child) for child in text.split()]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def state(pid: int) -> str:
    """The kernel's letter for what the process does, as in ps; empty when unknown or gone."""
    return (_stat(pid) or [""])[0]


def rss_bytes(pid: int) -> int:
    """Resident memory, shared pages in full."""
    if not _LINUX:
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return 0
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def pss_bytes(pid: int) -> int:
    """Resident memory, each shared page divided by its sharers; RSS where unknown."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return rss_bytes(pid)
    return 0


def cpu_s(pid: int) -> float:
    """CPU time of *pid* and its children that it waited for."""
    if not _LINUX:
        try:
            times = psutil.Process(pid).cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return 0.0
        return float(times.user + times.system)
    fields = _stat(pid)
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_S


def with_token(token: str) -> list[int]:
    """Every process of this machine that has *token* in its environment.

    Reads all processes: for cleaning up after a shim that was killed.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if token in process.environ().values() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found
