"""A progress point: what one log line said about how far training is."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NAN = ".nan"
"""End of the name of a metric, whose value is then 1, where its program told that it is NaN."""


class ProgressPoint(NamedTuple):
    """How far a run is, as far as one line of its log tells.

    A tuple, since a log may hold hundreds of thousands of lines a second.
    """

    t_s: float
    """Seconds since the container started."""
    iteration: int | None = None
    """Iterations done in all, counted from 1."""
    epoch: float | None = None
    """Epochs done in all."""
    total: int | None = None
    """Iterations there will be in all; of epochs when `iteration` is None."""
    metrics: Mapping[str, float] = MappingProxyType({})
    """Finite numbers only; of one that is NaN the name ends with `NAN`."""

    @property
    def epoch_took_s(self) -> float | None:
        """Seconds that the epoch that ends here took by its program's own words, or all so far.

        None where the line tells more than the end of an epoch, or no time.
        """
        if self.iteration is not None or self.epoch is None:
            return None
        return next((s for name in _LASTED if (s := self.metrics.get(name)) is not None), None)


class MetricSpan(NamedTuple):
    """What a metric was over an attempt."""

    last: float
    """NaN where its program told that it is."""
    lowest: float
    """Infinite where it was never a number."""
    highest: float


_LASTED = ("dur", "duration", "time", "epoch_time", "time_s", "elapsed", "elapsed_time", "took")
"""Metrics by which programs tell how long an epoch took."""
