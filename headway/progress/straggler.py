"""Which part of a gang is slow, by what the parts say of their steps.

Parts that wait for each other in each step end it at the same time, so lines of a log tell little
of who is slow. A program that reports `step_s`, what its own part of a step took before it waited
for others, tells; `data_s` says how much of it went by waiting for data. Without them a part's
pace is that of its iterations, which differs only where parts need not wait for each other.
What a program says is believed as far as it can be true: a step is no longer than its attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from headway.model.progress import ProgressPoint
from headway.units import format_duration

WINDOW = 50
"""Steps that are looked at, the newest ones."""
LOOKED_AT = 4 * WINDOW
"""So many of the newest points have them, also where not all are of steps."""
_FEWEST = 5
_SLOW = 1.2
"""A part that takes so many times what the median part takes is a straggler."""
_BUSY_FRAC = 0.9
_FOR_DATA = 0.5
"""This share of what it takes longer is waiting for data: that is what it lacks."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast one part of a gang goes."""

    rank: int
    node: str
    step_s: float
    """Median over the window."""
    data_s: float | None
    """Of it, waiting for data; None where the program does not say."""
    steps: int
    """Done in this attempt."""
    host_busy_frac: float | None = None
    """Share of its node's CPUs in use lately; None when not known."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """The slowest part, when it holds the others up."""

    pace: Pace
    usual: Pace
    """The part in the middle."""

    @property
    def lost_s(self) -> float:
        """What the gang has lost by it, if it was so slow from its attempt's first step on."""
        return (self.pace.step_s - self.usual.step_s) * self.pace.steps

    @property
    def text(self) -> str:
        """In a sentence."""
        pace, times = self.pace, self.pace.step_s / self.usual.step_s
        return (
            f"rank {pace.rank} on {pace.node} takes {pace.step_s:.3g} s a step, {times:.3g} times "
            f"the median part: {format_duration(self.lost_s)} lost in {pace.steps} steps; "
            f"{self._lacks()}"
        )

    def _lacks(self) -> str:
        pace, usual = self.pace, self.usual
        longer_s = pace.step_s - usual.step_s
        known = pace.data_s is not None and usual.data_s is not None
        if known and (pace.data_s or 0.0) - (usual.data_s or 0.0) >= _FOR_DATA * longer_s:
            return "it waits for data: its disk is slow, or it has too few CPUs to load them"
        if pace.host_busy_frac is not None and pace.host_busy_frac >= _BUSY_FRAC:
            return f"it lacks CPUs: those of its node are {pace.host_busy_frac:.0%} in use"
        return "what it lacks is not known: neither data nor CPUs by what is measured"


def pace_of(
    rank: int, node: str, points: Sequence[ProgressPoint], host_busy_frac: float | None = None
) -> Pace | None:
    """The pace of one part by its progress, oldest first; None while too little is known."""
    counted = [point for point in points if point.iteration is not None]
    pairs = list(pairwise(counted))[-WINDOW:]
    done = [(b.t_s - a.t_s, (b.iteration or 0) - (a.iteration or 0)) for a, b in pairs]
    said = [each for each in counted if 0.0 < each.metrics.get("step_s", 0.0) <= each.t_s]
    said = said[-WINDOW:]
    if len(said) >= _FEWEST:
        steps, waits = [each.metrics["step_s"] for each in said], list(map(_waited_s, said))
    else:
        steps, waits = [seconds / count for seconds, count in done if count > 0], []
    if len(steps) < _FEWEST or median(steps) <= 0:
        return None
    known_s = [each for each in waits if each is not None]
    # One that goes on from a checkpoint counts on from there.
    first, step_s = counted[0].iteration or 0, median(steps)
    before = first - min((count for _, count in done if count > 0), default=1)
    in_all = max(each.iteration or 0 for each in counted) - max(before, 0)
    fitting = round(counted[-1].t_s / step_s)
    data_s = median(known_s) if known_s else None
    return Pace(rank, node, step_s, data_s, min(in_all, fitting), host_busy_frac)


def _waited_s(point: ProgressPoint) -> float | None:
    """Waiting for data, as far as the point says what can be."""
    waited_s = point.metrics.get("data_s", -1.0)
    return waited_s if 0.0 <= waited_s <= point.metrics["step_s"] else None


def straggler_of(paces: Sequence[Pace]) -> Straggler | None:
    """The slowest of *paces*, where it takes much longer than the median one; else None."""
    if len(paces) < 2:
        return None
    ordered = sorted(paces, key=lambda pace: pace.step_s)
    slowest, usual = ordered[-1], ordered[(len(ordered) - 1) // 2]
    return Straggler(slowest, usual) if slowest.step_s >= _SLOW * usual.step_s else None
