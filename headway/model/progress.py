"""A progress point: what one log line said about how far training is."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


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
    """Finite numbers only: a NaN loss is left out here."""
