"""The engine port: what headway asks of a scheduler that decides itself who runs, and when.

`slurm.SlurmEngine` is an adapter, `tests.ports.engine.FakeEngine` the fake; both pass the
contract in `tests.ports.engine_contract`. To add an engine, write a class with what `Engine`
has, and subclass the contract. `place.Place` and `wrapper` do the rest for any engine whose
machines share a folder: log, outputs, exit and peak use lie there.

What an engine can do is told by types: `Engine.takes` has those of `Part` for which it has a
counterpart. A request with another part is refused before it is submitted, never imitated.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Protocol, Self, TypeVar

from pydantic import Field

from headway.engine.containers import Mount
from headway.engine.login import Login
from headway.model.engine import EnginePool
from headway.model.run import Exit, When

P = TypeVar("P")
_Bytes = Annotated[int, Field(ge=0, lt=2**62)]


@dataclass(frozen=True, slots=True)
class Array:
    """The same command *members* times; each finds its number, from 1, in its environment."""

    members: int
    at_most: int | None = None
    """So many may run at once; None for as many as the engine lets."""
    each: "tuple[Request, ...]" = ()
    """Jobs with keys of their own that are submitted together: what each member runs. They are
    asked for, told of, cancelled and forgotten by their own keys."""


@dataclass(frozen=True, slots=True)
class Gang:
    """On several nodes at once, in one allocation; what is asked for is asked for on each."""

    nodes: int
    starts_others: bool = False
    """The command runs on the first node only and starts the others itself, as `mpirun` does."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of each part; here as in the command the wrapper fills in {rank}, {world_size},
    {local_rank}, {master} and its two halves {master_addr} and {master_port}."""


@dataclass(frozen=True, slots=True)
class After:
    """Starts when the job of that key has ended so; if it never will, it is cancelled."""

    key: str
    when: When = When.OK


@dataclass(frozen=True, slots=True)
class Nice:
    """Behind one's own other jobs by so much; only operators may give less than 0."""

    value: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """The engine may start it anew where a node failed or a job of more priority took its place."""


Part = Array | Gang | After | Nice | Requeue
"""What a request may ask for beside resources."""


@dataclass(frozen=True, slots=True)
class GpuAsk:
    """GPUs on each node."""

    count: int
    type: str = ""
    """As the engine calls it; empty for any."""
    shards: int = 0
    """Instead of whole GPUs so many of the parts that the engine divides one into; 0: whole."""


@dataclass(frozen=True, slots=True)
class Request:
    """One submission. The same key is submitted once, however often it is tried."""

    key: str
    """Letters, digits, dot and dash; 64 at most."""
    name: str
    pool: str
    """Of the engine's: a partition, a queue."""
    command: tuple[str, ...]
    cpus: int
    host_memory_bytes: int
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    """Empty for the job's own folder."""
    python: str = ""
    """The version that the program finds as python, such as 3.11; empty for what the node has."""
    image: str = ""
    """By its full name: the command runs in it, started by what its node has for that."""
    mounts: tuple[Mount, ...] = ()
    """Folders that it finds in its image, beside its working directory and its outputs."""
    gpus: GpuAsk | None = None
    time_limit_s: float | None = None
    """None for the pool's own."""
    grace_s: float = 10.0
    """Between SIGTERM and SIGKILL: when it is cancelled, and before its time is over."""
    parts: tuple[Part, ...] = ()
    account: str = ""
    qos: str = ""
    login: Login | None = None
    """Whose job it is; None: this process's user's."""

    def part(self, kind: type[P]) -> P | None:
        """The first of its parts of that *kind*; None without one."""
        return next((part for part in self.parts if isinstance(part, kind)), None)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The engine has the job, under this name of its own."""

    key: str
    engine_id: str
    is_new: bool
    """False where it had it already: an earlier try went through."""


class Phase(enum.StrEnum):
    """What a job is doing; each asks for another next step."""

    WAITING = "waiting"
    HELD = "held"
    """It does not start until somebody releases it."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    """It holds its memory and does nothing."""
    ENDING = "ending"
    """Its program is over, its place not yet free."""
    ENDED = "ended"
    UNKNOWN = "unknown"
    """The engine uses a word that is not known here: the job is taken to go on."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits, or ended, as the engine says it."""

    code: str
    """The engine's own word."""
    sentence: str
    """What it means."""
    step: str = ""
    """What to do; empty where there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job, or one member of an array, as far as anybody knows of it."""

    key: str
    member: int
    """Of an array, from 1; 0 for a job that is none."""
    engine_id: str
    phase: Phase
    state: str = ""
    """The engine's own word; empty where it has forgotten the job."""
    reason: Reason | None = None
    end: Exit | None = None
    """How it ended. None while it has not, and where nobody can say any more."""
    expected_start_at: datetime | None = None
    """The engine's own forecast, of one that waits."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    time_limit_s: float | None = None
    """As it is now: somebody may have changed it."""
    nodes: str = ""
    """Where it runs, as the engine writes it."""
    is_cancelled: bool = False
    """Whether `Engine.cancel` was asked to end it."""
    changed: tuple[str, ...] = ()
    """What somebody has changed of it at the engine, in a clause each."""


@dataclass(frozen=True, slots=True)
class Used:
    """Resources that one job used, as its own machine measured them. None: could not be told."""

    host_peak_bytes: _Bytes | None = None
    """The most on any of its nodes."""
    cpu_s: Annotated[float, Field(ge=0, le=1e12)] | None = None
    gpu_peak_bytes: _Bytes | None = None
    """The most on any of its GPUs."""
    gpu_utilisation_frac: Annotated[float, Field(ge=0, le=1)] | None = None
    """The mean over its time and its GPUs."""

    @classmethod
    def over(cls, parts: Sequence[Self]) -> Self:
        """What its *parts*, each on a machine, used together."""

        def known(name: str) -> list[Any]:
            return [found for each in parts if (found := getattr(each, name)) is not None]

        shares = known("gpu_utilisation_frac")
        return cls(
            host_peak_bytes=max(known("host_peak_bytes"), default=None),
            cpu_s=sum(known("cpu_s")) if known("cpu_s") else None,
            gpu_peak_bytes=max(known("gpu_peak_bytes"), default=None),
            gpu_utilisation_frac=sum(shares) / len(shares) if shares else None,
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """What an engine has, and what it can."""

    version: str
    pools: tuple[EnginePool, ...]
    max_array: int = 0
    """The most members of an array."""
    remembers_s: float = 0.0
    """So long it tells of a job that has ended."""
    lacks: tuple[str, ...] = ()
    """What it does not have that headway could use, one sentence each with what follows."""


class Engine(Protocol):
    """A scheduler, spoken to as one user. Synchronous.

    Every method but those about files raises `EngineAway` when the engine does not answer, and
    may then be called again: nothing is done twice.
    """

    name: str
    """What people call it."""
    takes: frozenset[type[Part]]
    """For which parts of a request it has a counterpart."""

    def inspect(self) -> Cluster:
        """Its pools, nodes, GPUs and limits."""
        ...

    def submit(self, request: Request) -> Submitted:
        """Submit it, unless a job of that key is there or was.

        A process that is killed in here, wherever, leaves none or one job behind; who calls again
        with the same key gets that one. A job that the engine lost before it began (it tells
        of none such, and nothing of it ever ran) is submitted anew.

        Raises:
            EngineRefused: The engine does not take it; it says why.
            InvalidInput: It has a part that this engine does not take.
        """
        ...

    def jobs(self) -> tuple[Job, ...]:
        """Every job that was submitted through here and not forgotten, by one question for all.

        A job that the engine does not name any more has ended, as the record in its folder says.
        """
        ...

    def cancel(self, which: Collection[tuple[str, int]]) -> None:
        """End those jobs, by key and member (0: all of that key), each within its grace.

        Those that are not there, or have ended, are left as they are. Called again for one that
        has outlived its grace, it is killed.
        """
        ...

    def forget(self, key: str) -> None:
        """Remove all files of a job that has ended, and know nothing of it any more."""
        ...

    def log(self, key: str, member: int = 0) -> Path:
        """The file with what it has written until now; absent before its start."""
        ...

    def outputs(self, key: str, member: int = 0) -> Path:
        """The folder with the files that it leaves behind."""
        ...

    def used(self, key: str, member: int = 0) -> Used | None:
        """What it used; None until it has ended, or where its record was never written."""
        ...
