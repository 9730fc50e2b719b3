"""The processes below one process, and what they use.

psutil answers, but for the tree: it would read every process of the machine
each time, and a watchdog asks ten times a second.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def send(pid: int, number: int) -> None:
    """Signal *pid*, where it still lives."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def tree(pid: int) -> list[int]:
    """Every live process below *pid*, without *pid* itself.

    Of one whose first thread has ended another is named beside it: only that tells of its memory
    and its files.
    """
    found, todo = [], [pid]
    while todo:
        for child in _children(todo.pop()):
            todo.append(child)
            found += _living(child)
    return found


def _living(pid: int) -> list[int]:
    letter = state(pid)
    if letter != "Z":
        return [pid] if letter not in ("X", "") else []
    return [pid, *others[:1]] if (others := threads(pid)[1:]) else []


def threads(pid: int) -> list[int]:
    """Those of process *pid*, its first one before the others; none where it is gone."""
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")), key=lambda each: each != pid)  # noqa: PTH208 - a process that ends leaves no open iterator
    except (FileNotFoundError, ProcessLookupError):
        return []


def _children(pid: int) -> list[int]:
    children = []
    for thread in threads(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
            children += [int(child) for child in text.split()]
    return children


def state(pid: int) -> str:
    """The kernel's letter for what the process does, as in ps; empty when unknown or gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _asked(pid: int, question: Callable[[psutil.Process], T], default: T) -> T:
    """What *question* says of the process; *default* where it is gone or not ours to ask."""
    try:
        return question(psutil.Process(pid))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return default


def rss_bytes(pid: int) -> int:
    """Resident memory, shared pages in full."""
    return _asked(pid, lambda process: int(process.memory_info().rss), 0)


def pss_bytes(pid: int) -> int:
    """Resident memory, each shared page divided by its sharers; RSS where unknown."""
    pss = _asked(pid, lambda process: getattr(process.memory_full_info(), "pss", None), None)
    return rss_bytes(pid) if pss is None else int(pss)


def cpu_s(pid: int) -> float:
    """CPU time of *pid*, and of its children that it waited for."""
    return _asked(pid, lambda process: float(sum(process.cpu_times()[:4])), 0.0)


def with_token(token: str) -> list[int]:
    """Every process of this machine that has *token* in its environment.

    Reads all processes: for cleaning up after a shim that was killed.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if token in process.environ().values() and _alive(process):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found


def kill_below(pid: int) -> bool:
    """Kill every process below *pid*; whether there was any. Stopped first: nothing forks away."""
    pids = tree(pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in pids:
            with suppress(ProcessLookupError):
                os.kill(each, number)
    return bool(pids)
