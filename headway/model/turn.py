"""When it is a run's turn: its place in the order of the queue, and what it was promised."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Turn:
    """What a run is given once and keeps, through restarts and further attempts."""

    tag: float
    """What its team will have attained when the run ends in the virtual system: see
    `policy.order`."""
    promised_at: datetime | None = None
    """By when it is promised to start; None until it may start at all."""


@dataclass(frozen=True, slots=True)
class VirtualClock:
    """The virtual system of a pool at one moment: see `policy.order`."""

    at: datetime
    attained: Mapping[str, float] = field(default_factory=dict)
    """By team: GPU-seconds of each of its runs since the beginning."""
