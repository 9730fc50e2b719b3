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

from headway.estimate.spread import Z80

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
    wanted, rows = _terms(gpus, nodes), list[_Row]()
    for point in points:
        doublings = abs(math.log2(gpus / point.gpus)) + (nodes > 1 and point.nodes == 1)
        rows.append(_row(point, 1.0 / (1.0 + doublings**2)))
    least_s = min(point.gpus * point.seconds for point in points)
    for position, prior in ((1, _WITHIN), (2, _ACROSS)):
        expected = [-prior, 0.0, 0.0]
        expected[position] = 1.0
        rows.append(([each * _PRIOR_WEIGHT / least_s for each in expected], 0.0))
    fitted = _possible(rows)
    misfit = max(abs(_error(_row(point, 1.0), fitted)) for point in points)
    half = Z80 * math.hypot(_sd(points, gpus, nodes), misfit)
    seconds = sum(a * b for a, b in zip(fitted, wanted, strict=True)) / gpus
    return Scaled(seconds, seconds * math.exp(-half), seconds * math.exp(half))


_Row = tuple[Sequence[float], float]
"""Factors of the three unknowns, and what their sum is to be."""


def _row(point: Point, weight: float) -> _Row:
    both_s = point.gpus * point.seconds
    return [each * weight / both_s for each in _terms(point.gpus, point.nodes)], weight


def _error(row: _Row, unknowns: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(row[0], unknowns, strict=True)) - row[1]


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


def _possible(rows: Sequence[_Row]) -> list[float]:
    """The least squares solution with work, and links that cost from nothing to `_MOST` of it.

    Each of the two terms of links is tried at either end and between: nine ways.
    """
    best, least = [0.0] * 3, math.inf
    for ends in product((0.0, None, _MOST), repeat=2):
        free = [at for at, end in enumerate(ends, start=1) if end is None]
        bound = [(at, end) for at, end in enumerate(ends, start=1) if end]
        reduced = [
            ([row[0] + sum(end * row[at] for at, end in bound), *(row[at] for at in free)], wanted)
            for row, wanted in rows
        ]
        found = _least_squares(reduced)
        if found is None or found[0] <= 0 or not all(0 <= x <= _MOST * found[0] for x in found[1:]):
            continue
        unknowns = [found[0], 0.0, 0.0]
        for at, end in bound:
            unknowns[at] = end * found[0]
        for at, value in zip(free, found[1:], strict=True):
            unknowns[at] = value
        error = sum(_error(row, unknowns) ** 2 for row in rows)
        if error < least:
            best, least = unknowns, error
    return best


def _least_squares(rows: Sequence[_Row]) -> list[float] | None:
    """Solve the normal equations of *rows*; None where no solution is the best one."""
    size = len(rows[0][0])
    matrix = [
        [sum(row[i] * row[j] for row, _ in rows) for j in range(size)]
        + [sum(row[i] * wanted for row, wanted in rows)]
        for i in range(size)
    ]
    scale = max(abs(each) for line in matrix for each in line[:-1])
    for at in range(size):
        pivot = max(range(at, size), key=lambda line: abs(matrix[line][at]))
        if abs(matrix[pivot][at]) <= 1e-12 * scale:
            return None
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        for line in range(size):
            if line != at:
                factor = matrix[line][at] / matrix[at][at]
                matrix[line] = [
                    a - factor * b for a, b in zip(matrix[line], matrix[at], strict=True)
                ]
    return [matrix[at][size] / matrix[at][at] for at in range(size)]
