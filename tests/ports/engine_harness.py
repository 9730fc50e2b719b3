"""A cluster to test an engine on, and what somebody does there with the engine's own commands."""

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from headway.clock import SystemClock
from headway.engine.port import Engine, Job, Part, Phase, Request, Submitted
from headway.errors import InvalidInput
from headway.model.run import Exit
from headway.units import MIB
from headway.waits import until

SLEEPS = "echo up; exec sleep 300"
OBEYS = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"
IGNORES = "trap '' TERM; echo up; while :; do sleep 0.05; done"


class Somebody(Protocol):
    """What users and operators do beside headway, and what happens to the engine."""

    def hold(self, engine_id: str) -> None:
        """Let a job that waits not start."""

    def release(self, engine_id: str) -> None:
        """Let it start."""

    def cancel(self, engine_id: str) -> None:
        """End it."""

    def requeue(self, engine_id: str) -> None:
        """End it and put it into the queue again."""

    def restart(self) -> None:
        """Of the engine: it forgets nothing that it has promised to keep."""

    def forget_ended(self) -> None:
        """The engine forgets the jobs that have ended."""


@dataclass
class EngineHarness:
    """One cluster.

    Attributes:
        make: Site → an engine of its own there, as another process would have it.
        somebody: What is done there beside headway.
        folder: Where the place of the engines of `make` is.
        pool: With room for *slots* jobs of one CPU, on two nodes.
        slots: How many of them run at once.
        within_s: Nothing of a test takes so long there.
        limit_s: A time limit that a test can wait for; None where the engine has none so short.
        held: What is told of a job that somebody holds.
    """

    make: Callable[[str], Engine]
    somebody: Somebody
    folder: Path
    pool: str
    slots: int = 4
    within_s: float = 20.0
    limit_s: float | None = None
    held: Phase = Phase.HELD
    _number: Iterator[int] = field(default_factory=itertools.count)

    def engine(self) -> Engine:
        """Another process's."""
        return self.make("contract")

    def request(self, command: str, **changes: Any) -> Request:
        """A job of its own."""
        key = f"{self.folder.parent.name.replace('_', '-')[:40]}-{next(self._number)}"
        least = {"name": "contract", "cpus": 1, "host_memory_bytes": 64 * MIB, "grace_s": 10.0}
        shell = ("sh", "-c", command)
        return Request(**{"key": key, "pool": self.pool, "command": shell, **least, **changes})

    def submitted(self, command: str, **changes: Any) -> Submitted:
        """The same, submitted."""
        return self.engine().submit(self.request(command, **changes))

    def refuses(self, part: Part) -> bool:
        """Whether the engine has no counterpart of *part*: then it says so, and takes no job."""
        if type(part) in self.engine().takes:
            return False
        request = self.request("true", parts=(part,))
        with pytest.raises(InvalidInput, match="has nothing like it"):
            self.engine().submit(request)
        assert self.job(request.key) is None
        return True

    def job(self, key: str, member: int = 0) -> Job | None:
        """What is told of it now."""
        found = (each for each in self.engine().jobs() if (each.key, each.member) == (key, member))
        return next(found, None)

    def until(self, key: str, *phases: Phase, member: int = 0) -> Job:
        """Wait until it is in one of *phases*."""
        job = None
        give_up_s = time.monotonic() + self.within_s
        while time.monotonic() < give_up_s:
            job = self.job(key, member)
            if job is not None and job.phase in phases:
                return job
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for {phases}: {job}")

    def ended(self, key: str, member: int = 0) -> Job:
        """Wait for its end."""
        return self.until(key, Phase.ENDED, member=member)

    def end(self, key: str, member: int = 0) -> Exit:
        """How it ended, once it has."""
        end = self.ended(key, member).end
        assert end is not None, key
        return end

    def up(self, key: str) -> None:
        """Wait until its program says so."""
        self.until(key, Phase.RUNNING)
        is_up = until(lambda: self.log(key) == "up\n", SystemClock(), self.within_s, 0.05)
        assert is_up, self.log(key)

    def written(self, key: str) -> None:
        """Wait until its wrapper has written how it ended, and ask the engine nothing."""
        there = (self.folder / key / "ended.json").exists
        assert until(there, SystemClock(), self.within_s, 0.05), key
        time.sleep(0.5)  # then it ends itself

    def log(self, key: str, member: int = 0) -> str:
        """What it wrote."""
        path = self.engine().log(key, member)
        return path.read_text() if path.exists() else ""

    def full(self) -> list[str]:
        """The keys of jobs that hold every place."""
        return [self.submitted(SLEEPS).key for _ in range(self.slots)]

    def at_once(self, number: int, act: Callable[[Engine], Submitted]) -> list[Submitted]:
        """What so many processes get at one moment."""
        with ThreadPoolExecutor(number) as pool:
            return list(pool.map(act, [self.engine() for _ in range(number)]))
