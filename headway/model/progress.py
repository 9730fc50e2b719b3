"""A progress point: what one log line said about how far training is."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """How far a run is, as far as one line of its log tells."""

    t_s: float
    """Seconds since the container started."""
    iteration: int | None = None
    """Iterations done in all, counted from 1."""
    epoch: float | None = None
    """Epochs done in all."""
    total: int | None = None
    """Iterations there will be in all; of epochs when `iteration` is None."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Finite numbers only: a NaN loss is left out here."""
