"""How far apart runtimes lie, told from a few of them. Cheap to import."""

import math
from collections.abc import Sequence
from statistics import NormalDist, median

Z80 = NormalDist().inv_cdf(0.9)
"""Half width of an 80 % interval, in standard deviations."""
_PRIOR_WEIGHT = 3.0
"""The spread that is expected beforehand counts as so many runs."""


def next_of(logs: Sequence[float], prior_sd: float) -> tuple[float, float]:
    """Median and standard deviation of the next log runtime after those in *logs*.

    The variance has an inverse chi-squared prior, so that two runs that
    happened to take the same time do not make a third one certain.

    Args:
        logs: Logarithms of runtimes; at least one.
        prior_sd: Standard deviation that is expected before any is seen.
    """
    centre = median(logs)
    squares = sum((each - centre) ** 2 for each in logs)
    variance = (_PRIOR_WEIGHT * prior_sd**2 + squares) / (_PRIOR_WEIGHT + len(logs) - 1)
    return centre, math.sqrt(variance * (1 + 1 / len(logs)))
