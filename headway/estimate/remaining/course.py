"""How a run's speed changes on its way, as an earlier run of its recipe has shown.

Some programs are many times slower once they have collected enough to learn from, or later in a
curriculum; neither their log nor their time so far tells it. Such a run's units are weighed by the
time that they took the earlier one: counted so, its speed is even.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist
from typing import Self

import numpy as np
import numpy.typing as npt

from headway.estimate.options import Count
from headway.model.progress import ProgressPoint

LEAST_POINTS = 8
"""Fewer do not tell a change of speed from one slow unit."""
CUTS, UNEVEN = (0.25, 0.5, 0.75), 2.0
"""Units after one of these parts of a run take at least so many times as long as those before it,
or as much less; what changes by less may be noise."""
_LAST_FRAC = 0.25
"""Beyond the earlier run's end the speed of that last part of its units goes on …"""
_FAR = 1e6
"""… for so many times its units."""

_MOST_LOG, _LEAST_SD = 100.0, 1e-3
"""Bounds of a law of logarithms."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Units weighed by the time that they took; on average one weighs 1."""

    count: Count
    """What the units are."""
    _done: npt.NDArray[np.float64]
    _weighed: npt.NDArray[np.float64]
    """All that was done at `_done`, so weighed; both begin with 0 and rise."""

    @classmethod
    def of(cls, points: Sequence[ProgressPoint]) -> Self | None:
        """The course of a run by *points*, in order; None where they do not tell.

        They do not where it began again, or changed what it counts.
        """
        count: Count = "iterations" if points and points[-1].iteration is not None else "epochs"
        counted = [each.iteration if count == "iterations" else each.epoch for each in points]
        told = [at for at, each in enumerate(counted) if each is not None]
        t_s = np.array([points[at].t_s for at in told], dtype=np.float64)
        done = np.array([counted[at] for at in told], dtype=np.float64)
        totals = {each.total for each in points if each.total}
        if (np.diff(done) < 0.0).any() or len(totals) > 1:
            return None
        last = np.diff(t_s, append=np.inf) > 0.0  # what was read at once came by and by
        t_s, done = t_s[last], done[last]
        new = np.diff(done, prepend=-np.inf) > 0.0
        # What came before its second report is start-up: its units count as those right after.
        t_s, done = t_s[new][1:], done[new][1:]
        if len(done) < LEAST_POINTS or done[0] < 0.0 or t_s[-1] <= t_s[0]:
            return None
        first_s = (t_s[1] - t_s[0]) / (done[1] - done[0]) * done[0]
        took_s = np.append(0.0, t_s - t_s[0] + first_s)
        done = np.append(0.0, done)
        # No unit weighs nothing: what is done would not count.
        weighed = 0.99 * took_s * (done[-1] / took_s[-1]) + 0.01 * done
        since = (1.0 - _LAST_FRAC) * done[-1]
        last = (weighed[-1] - np.interp(since, done, weighed)) / (done[-1] - since)
        far = _FAR * done[-1]
        return cls(
            count, np.append(done, done[-1] + far), np.append(weighed, weighed[-1] + last * far)
        )

    def weighed(self, done: float) -> float:
        """All that was done once *done* units were, weighed."""
        return float(np.interp(done, self._done, self._weighed))

    def weight(self, done: float) -> float:
        """Of the unit that comes after *done*."""
        at = int(np.searchsorted(self._done, max(done, 0.0), side="right"))
        at = min(at, len(self._done) - 1)
        (from_, to), (before, after) = self._done[at - 1 : at + 1], self._weighed[at - 1 : at + 1]
        return float((after - before) / (to - from_))

    @property
    def end(self) -> float:
        """Units that the earlier run had."""
        return float(self._done[-2])

    def change(self, cut: float, end: float) -> float:
        """How many times as long a unit takes between *cut* and *end* as before *cut*."""
        before = self.weighed(cut)
        return (self.weighed(end) - before) / (end - cut) / (before / cut)

    def law(self, of: NormalDist) -> NormalDist:
        """Of the logarithm of how much there is in all, weighed, by that *of* its units."""
        low, mid, high = (
            log(max(self.weighed(exp(min(of.mean + each * of.stdev, _MOST_LOG))), 1e-9))
            for each in (-1, 0, 1)
        )
        return NormalDist(mid, max((high - low) / 2.0, _LEAST_SD))


def common_course(runs: Sequence[Sequence[ProgressPoint]]) -> Course | None:
    """The course of the first of *runs*, newest first; None where they were not uneven alike.

    A run that had a neighbour for half of its time is uneven, too.
    """
    courses = [course for each in runs if (course := Course.of(each)) is not None]
    if not courses or len(courses) < len(runs) or len({each.count for each in courses}) > 1:
        return None
    end = min(each.end for each in courses)
    for cut in CUTS:
        changes = [each.change(cut * end, end) for each in courses]
        if min(changes) >= UNEVEN or max(changes) <= 1.0 / UNEVEN:
            return courses[0]
    return None
