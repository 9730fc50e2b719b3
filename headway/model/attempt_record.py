"""What is kept of each attempt of a run after the next one has begun."""

from dataclasses import dataclass
from datetime import datetime

from headway.model.lease import Demand, Resource
from headway.model.run import Exit, Measurement, Prediction


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt: what it waited for, where it ran, how it ended."""

    run_id: str
    attempt: int
    node: str | None = None
    """Where it was granted; None when it never was."""
    resource: Resource | None = None
    """What was scarce when it last waited; None when it did not wait."""
    reason: str = ""
    """The same in words and numbers."""
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    """When its container was started."""
    ended_at: datetime | None = None
    exit: Exit | None = None
    """None while it goes on."""
    prediction: Prediction | None = None
    demand: Demand | None = None
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True)
class Failures:
    """Attempts of a run that failed so far, by whose failure it was.

    A program that runs out of memory does so again: that counts for as long as
    the run lasts. What node or engine failed is over some time later, and must
    not end a healthy run of weeks.
    """

    program: int = 0
    """Ran out of host or GPU memory."""
    infrastructure: int = 0
    """Ended by node or engine, within the last hour."""
    restarts: int = 0
    """Ended by a restart of their machine, within the last hour, and counted as no failure."""


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """How far an attempt is, as whoever follows it last said."""

    run_id: str
    attempt: int
    at: datetime
    elapsed_s: float
    done_frac: float | None = None
    """Share of its iterations or epochs done; None where its log does not tell."""
    remaining_s: float | None = None
    low_s: float | None = None
    """Ends of the 80 % interval."""
    high_s: float | None = None
    phase: str = ""
    """What it does before its program starts, such as making its environment."""
    iteration: int | None = None
    """Where it is: as in `ProgressPoint`, as the next two."""
    epoch: float | None = None
    total: int | None = None
    per_s: float | None = None
    """Iterations a second of late, or epochs where no iterations are known."""
