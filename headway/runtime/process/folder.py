"""What lies in the folder of one program, read so that a damaged file stops nobody.

    spec.json      what is asked for; there before anything runs
    running.json   its processes; there once the program runs
    memory_limit   bytes, where its limit was raised
    exit.json      how it ended; a file of its own, so that nothing else that breaks undoes an end
    lock           held by its shim and its keeper while anything of it may live

A file that was cut says nothing. What another one needs of it stands in that one too, and
whether the program lives is asked of the lock, which no loss of power leaves behind.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from headway.runtime.port import ContainerState, ContainerStatus
from headway.runtime.process import proctree, shim

ABOUT = ("run_id", "attempt", "log_path", "token")
"""What each of the three files says."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What is known of one program."""

    name: str
    spec: Mapping[str, Any]
    running: Mapping[str, Any]
    ended: Mapping[str, Any]
    began: bool
    """Whether it was started, though `running` may be unreadable."""
    is_over: bool
    """Whether it ended or nothing of it lives, though `ended` may be unreadable."""

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """What *folder* says; None where there is no such folder."""
        # The order matters: what was noted first is read last, so no end is missed.
        running = _load(folder / "running.json")
        lives = running is not None and is_held(folder)
        ended = _load(folder / "exit.json")
        spec = _load(folder / "spec.json")
        if spec is None:
            return None
        return cls(
            name=folder.name,
            spec=spec,
            running=running or {},
            ended=ended or {},
            began=running is not None or ended is not None,
            is_over=ended is not None or (running is not None and not lives),
        )

    def about(self, what: str) -> Any:
        """One of `ABOUT`; None where no file can tell it."""
        sources = (self.spec, self.running, self.ended)
        return next((each[what] for each in sources if what in each), None)

    def status(self) -> ContainerStatus:
        """As the runtime's port has it. An end that cannot be read has no exit code."""
        state = ContainerState.CREATED
        if self.began:
            state = ContainerState.EXITED if self.is_over else ContainerState.RUNNING
        started_at = self.running.get("started_at", self.ended.get("started_at"))
        ended_at = self.ended.get("ended_at")
        run_id, _, attempt = self.name.rpartition("-")
        return ContainerStatus(
            name=self.name,
            run_id=self.about("run_id") or run_id.removeprefix("headway-"),
            attempt=self.about("attempt") or (int(attempt) if attempt.isdecimal() else 0),
            state=state,
            exit_code=self.ended.get("exit_code"),
            oom_killed=bool(self.ended.get("oom_killed")),
            started_at=None if started_at is None else datetime.fromtimestamp(started_at, UTC),
            ended_at=None if ended_at is None else datetime.fromtimestamp(ended_at, UTC),
            pids=self.pids() if state is ContainerState.RUNNING else (),
            error=self.ended.get("error", ""),
        )

    def pids(self) -> tuple[int, ...]:
        """Its live processes, without those that hold it."""
        if self.running:
            return tuple(proctree.tree(self.running["shim"]["pid"]))
        token = self.about("token")
        return tuple(proctree.with_token(token)) if token else ()


def is_held(folder: Path) -> bool:
    """Does its shim or its keeper live? Not to be asked before the program was started."""
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def read_usage(folder: Path) -> dict[str, Any]:
    """What the program used, as its shim last wrote it down; empty where that cannot be read."""
    return _load(folder / "usage.json") or {}


def _load(path: Path) -> dict[str, Any] | None:
    """What *path* holds: nothing where it cannot be read, None where there is no such file."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def lives(process: Mapping[str, Any]) -> bool:
    """Does the very process that was noted still live?"""
    return process["identity"] is not None and shim.identity(process["pid"]) == process["identity"]
