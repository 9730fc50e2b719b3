"""How a time changes with the number of GPUs, from runs on other numbers of them.

What *n* GPUs spend together on the same work is what one spends, and what they spend on summing
their gradients. A ring sends 2 (n − 1) / n of the gradients from each GPU for each step (Patarasuk
and Yuan, 2009), so with *g* GPUs on each of *k* nodes, n = g k,

    n T(n) = a + w · 2 (g − 1) / g + b · 2 (k − 1) / k

with one term for the links within a node, and one for those between nodes. Three numbers are all
that a few runs can tell. Cheap to import.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from headway.estimate.spread import Z80

if TYPE_CHECKING:
    from headway.estimate.encode import Floats

_WITHIN, _ACROSS = 0.23, 0.81
"""Prior of w / a and b / a: medians over 343 measured configurations (Gavel, OSDI 2020)."""
_MOST = 2.0
"""Of either, w / a or b / a. Runs that more GPUs make no faster would leave nothing for the work
itself, and one GPU would take no time."""
_PRIOR_WEIGHT = 0.02
"""Of either, beside a run on the very number that is asked about."""
_REPEAT_SD, _SD_PER_DOUBLING = 0.06, 0.08
"""Of log time: of a number that was measured; more for each doubling to the nearest one."""
_WITHIN_SD, _ACROSS_SD = 0.25, 0.5
"""Of log time, where no run has shown what links of that kind cost."""


@dataclass(frozen=True, slots=True)
class Point:
    """What some run took on its GPUs."""

    gpus: int
    """In all."""
    nodes: int
    seconds: float
    """For the same work at each point, an epoch or a whole run."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """What the same work takes on other GPUs; the interval holds 80 %."""

    seconds: float
    low_s: float
    high_s: float


def scaled(points: Sequence[Point], gpus: int, nodes: int) -> Scaled:
    """What the work of *points* takes on *gpus* GPUs in all, over *nodes* nodes.

    Runs on numbers near the one that is asked about count most: what one GPU
    does alone lacks all that a second one brings along.

    Args:
        points: Runs of the same work on the same kind of GPU; at least one.
        gpus: In all; as many on each node.
        nodes: How many.

    Returns:
        Seconds and their interval.
    """
    import numpy as np  # noqa: PLC0415 - only where runs on other numbers of GPUs are known

    spent_s = np.array([point.gpus * point.seconds for point in points])
    doublings = [
        abs(math.log2(gpus / point.gpus)) + (nodes > 1 and point.nodes == 1) for point in points
    ]
    weights = 1.0 / (1.0 + np.square(doublings))
    terms = np.array([_terms(point.gpus, point.nodes) for point in points])
    terms *= spent_s.min() / spent_s[:, None]
    prior = _PRIOR_WEIGHT * np.array([[-_WITHIN, 1.0, 0.0], [-_ACROSS, 0.0, 1.0]])
    rows = np.vstack([terms * weights[:, None], prior])
    fitted = _possible(rows, np.append(weights, [0.0, 0.0]))
    misfit = float(np.abs(terms @ fitted - 1.0).max())
    half = Z80 * math.hypot(_sd(points, gpus, nodes), misfit)
    seconds = float(spent_s.min() * (fitted @ _terms(gpus, nodes))) / gpus
    return Scaled(seconds, seconds * math.exp(-half), seconds * math.exp(half))


def _terms(gpus: int, nodes: int) -> list[float]:
    each = max(gpus // nodes, 1)
    return [1.0, 2 * (each - 1) / each, 2 * (nodes - 1) / nodes]


def _sd(points: Sequence[Point], gpus: int, nodes: int) -> float:
    """Standard deviation of the log of what is said."""
    doublings = min(abs(math.log2(gpus / point.gpus)) for point in points)
    variance = (_REPEAT_SD + _SD_PER_DOUBLING * doublings) ** 2
    if gpus > nodes and all(point.gpus == point.nodes for point in points):
        variance += _WITHIN_SD**2
    if nodes > 1 and all(point.nodes == 1 for point in points):
        variance += _ACROSS_SD**2
    return math.sqrt(variance)


def _possible(rows: "Floats", wanted: "Floats") -> "Floats":
    """The least squares solution with work, and links that cost from nothing to `_MOST` of it.

    Such solutions are a cone: a sum of its four edges, with weights not below zero.
    """
    import numpy as np  # noqa: PLC0415 - as above
    from scipy.optimize import nnls  # noqa: PLC0415

    edges = np.array([[1.0, within, across] for within, across in product((0.0, _MOST), repeat=2)])
    return np.asarray(nnls(rows @ edges.T, wanted)[0] @ edges, dtype=np.float64)
