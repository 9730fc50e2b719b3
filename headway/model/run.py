"""A run: the execution of a job, its attempts, its steps and how it ended."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from headway.errors import shown
from headway.model.lease import Demand


class RunState(enum.StrEnum):
    """Where a run is. `TRANSITIONS` says what may follow what."""

    WAITING = "waiting"
    """In the queue; holds nothing. Its reason says what it waits for."""
    CLAIMED = "claimed"
    """A node holds a lease for it; its flow is starting, staging or being admitted."""
    RUNNING = "running"
    """Its container was started."""
    ENDED = "ended"
    """Nothing more will happen unless its user asks for another attempt; `ExitKind` says how it
    ended."""


TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.WAITING: frozenset({RunState.CLAIMED, RunState.ENDED}),
    # Back to WAITING: the real data set is larger than promised, or an attempt is retried.
    RunState.CLAIMED: frozenset({RunState.RUNNING, RunState.WAITING, RunState.ENDED}),
    RunState.RUNNING: frozenset({RunState.WAITING, RunState.ENDED}),
    # Only on its user's word: `Runs.retry`.
    RunState.ENDED: frozenset({RunState.WAITING}),
}


GRANTED = frozenset({RunState.CLAIMED, RunState.RUNNING})
"""In these a run holds a lease on its node."""


def rank_name(name: str, rank: int) -> str:
    """Name of one rank of the gang called *name*; no longer than a name may be."""
    return f"{name[:55]}-rank{rank}"


class ExitKind(enum.StrEnum):
    """How an attempt ended, told apart because each asks for another next step."""

    OK = "ok"
    FAILED = "failed"
    """The program itself returned non-zero: the user looks at the log."""
    OUT_OF_MEMORY = "out_of_memory"
    """Killed at its host memory limit: retried with more, and learned from."""
    GPU_OUT_OF_MEMORY = "gpu_out_of_memory"
    """The framework reported that GPU memory ran out."""
    TIMED_OUT = "timed_out"
    """Ran longer than `max_runtime`: not a failure of the program, never retried."""
    CANCELLED = "cancelled"
    INFRASTRUCTURE = "infrastructure"
    """The engine or the node ended it, not the program: retried, not the user's fault."""
    PREEMPTED = "preempted"
    """Stopped for a run of a higher priority: goes on from its checkpoint, counts as no retry."""
    REFUSED = "refused"
    """Never started: bad input, impossible demand, data set or image missing."""


class When(enum.StrEnum):
    """How the run has to have ended that another one follows."""

    OK = "ok"
    ANY = "any"
    FAILED = "failed"
    """In any other way than well."""


PROGRAM_FAILURES = frozenset({ExitKind.OUT_OF_MEMORY, ExitKind.GPU_OUT_OF_MEMORY})
"""The program's own failures that another attempt can mend: it gets more memory."""


class StepState(enum.StrEnum):
    """State of one of the five steps of a run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


STEPS = ("stage_data", "admit", "train", "update_estimates", "clean_up")
"""The five steps of a run, in order."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one attempt."""

    name: str
    attempt: int
    state: StepState
    started_at: datetime
    ended_at: datetime | None
    message: str = ""


CANCELLED_BY = "cancelled by OS user "
"""How a message begins that says who cancelled a run."""
CANCELLED_BY_USER = "cancelled by user "
"""The same of whom the gateway knows by a token."""
RESTARTED = "its machine was restarted; it goes on from its checkpoint when there is room again"
"""Message of the exit of an attempt that ended so, which counts as no failure."""
SICK_GPU = "a GPU that it held is sick"
"""How the message of an attempt begins that ended for that, which counts as a restart."""
DELETED = "its run was deleted in Prefect"


def cancelled_by(message: str) -> str:
    """What is known of who cancelled a run, by the *message* of its state in Prefect."""
    if message.startswith((CANCELLED_BY, CANCELLED_BY_USER)):
        return shown(message, 120)[1:-1]
    return "cancelled by a person or a rule (through Prefect, which does not say by whom)"


@dataclass(frozen=True, slots=True)
class Exit:
    """How an attempt ended, and the one line that says what to do."""

    kind: ExitKind
    code: int | None
    """The container's exit code, where there was one."""
    message: str


OF_RECIPE = "prior: what "
"""How a basis begins where runs of its recipe, but unlike it, stand in the place of the prior."""


class Span(NamedTuple):
    """A time in seconds that is not known exactly, with its 80 % interval."""

    low_s: float
    median_s: float
    high_s: float

    def left(self, elapsed_s: float) -> "Span":
        """What of it is left after *elapsed_s*; what outlives it lasts for a while yet.

        A lower end of 0 stays: no more than the most is known.
        """
        floor_s = 0.05 * max(elapsed_s, 0.0)
        low_s, median_s, high_s = (max(each - elapsed_s, floor_s) if each else 0.0 for each in self)
        return Span(low_s, median_s, high_s)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was said before the start. None: nothing could be said."""

    runtime_s: float | None = None
    runtime_low_s: float | None = None
    runtime_high_s: float | None = None
    host_peak_bytes: int | None = None
    gpu_peak_bytes: int | None = None
    gpu_utilisation_frac: float | None = None
    """Share of a GPU's time that it will use."""
    host_above_bytes: int | None = None
    """Runs like it were killed for host memory at so much: it needs more."""
    gpu_above_bytes: int | None = None
    """Runs like it ran out of memory on a GPU with so much: each GPU needs more."""
    gpu_held_bytes: int | None = None
    """Runs like it that were cut short held so much on a GPU; none has ended well."""
    gpu_type: str = ""
    """Product name of the GPU that it is about; ``cpu`` for none, empty where unknown."""
    cost: float | None = None
    basis: str = "prior"
    """Name of the estimator and what it rests on; begins with ``prior`` where that is nothing."""
    sizes: tuple["Sized", ...] = ()
    """The same of each size that the run may have, the smallest first; empty where it has one."""

    def of_size(self, sized: "Sized") -> "Prediction":
        """What was said of one of its sizes, which knows of the others, too."""
        return replace(sized.said, sizes=self.sizes)

    @property
    def told(self) -> Span | None:
        """The runtime as people are told it; None where it is a guess, or other programs' time."""
        guess = self.basis.startswith("prior") and not self.basis.startswith(OF_RECIPE)
        return None if guess else self._span

    @property
    def learnt_runtime_s(self) -> float | None:
        """The median runtime; None where it is only the prior's."""
        return None if self.basis.startswith("prior") else self.runtime_s

    @property
    def learnt(self) -> Span | None:
        """The same with its interval."""
        return None if self.learnt_runtime_s is None else self._span

    @property
    def _span(self) -> Span | None:
        median_s = self.runtime_s
        if median_s is None:
            return None
        low_s = median_s if self.runtime_low_s is None else self.runtime_low_s
        high_s = median_s if self.runtime_high_s is None else self.runtime_high_s
        return Span(low_s, median_s, high_s)


@dataclass(frozen=True, slots=True)
class Sized:
    """What a run needs and takes at one of the sizes that it may have."""

    demand: Demand
    said: Prediction


ANOTHER_TEAMS = "a run of another team"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured. None: could not be measured, never 'zero'."""

    runtime_s: float | None = None
    host_peak_bytes: int | None = None
    host_cache_bytes: int | None = None
    """Page cache beside the peak, which needs no room of its own; where the cgroup tells."""
    gpu_peak_bytes: int | None = None
    gpu_utilisation_frac: float | None = None
    """Of its GPUs, while nobody else used them."""
    cpu_s: float | None = None
    cost: float | None = None
    disk_peak_bytes: int | None = None
    """Most that it had written at once, in outputs, checkpoint, log and container."""
    slowed: Mapping[str, float] = field(default_factory=dict)
    """By run that was on its GPU, `ANOTHER_TEAMS` with a number for others' (before, one that was
    empty): a step took so many times as long."""
