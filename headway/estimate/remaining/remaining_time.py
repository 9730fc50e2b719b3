"""How long a run will still take, from its prior and from what it has shown so far.

The time that is left is (units left) × (seconds per unit) + (pauses left). A
unit is an iteration, or an epoch where nothing finer is known.

- *Seconds per unit*: every place where the speed may have changed last is
  weighed (`changes`), so that a steady run is averaged over long, a
  slow-down is followed at once and a drift is carried on. Start-up is left out:
  the first iterations may be hundreds of times slower (`level`).
- *Pauses* (validation, checkpoints) are told from noise by their length, and
  come again at their own period (`pauses`).
- The *prior* weighs as much as its interval is narrow, the evidence as much
  as it is long and agrees with itself; both on a log scale.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from headway.estimate.remaining.course import Course
from headway.estimate.remaining.history import History, Intervals
from headway.estimate.remaining.level import (
    QUANTILE_80,
    level_of,
    startup_entries,
    with_one_under_way,
    without_report_at_begin,
)
from headway.estimate.remaining.pauses import pause_flags, pauses_ahead

PRIOR_SD = 0.5
"""Standard deviation of the log of a prior that comes without an interval."""
FIRST_END = 0.06
"""Until an epoch has ended: so much longer what is left is, for a validation or a checkpoint …"""
FIRST_END_UP, FIRST_END_DOWN = 0.35, 0.14
"""… or much more than that, or nothing; and later epochs may be faster, as when data has been
cached (standard deviations of the log of what is left)."""
MOST_SD = 4.5
"""Standard deviation of the log of what nearly nothing is known of."""
FREEDOM = 4.0
"""Degrees of freedom of laws that a few runs have taught; `next_of` has three and more."""
_T_80 = float(stdtrit(FREEDOM, 0.9))
BEGUN_SD = math.log(10.0) / QUANTILE_80
"""Standard deviation upwards of the log of what is left where a first unit may only have begun: of
what has lasted for a while one in ten lasts ten times as long."""
COURSE_SD = 0.15
"""Standard deviation of the log of what is left where an earlier run tells how speeds change."""
OUTLASTED = 0.02
"""Of a run that has lasted longer than all but so many of those like it nothing is known."""
STALL_UNITS = 10.0
"""Without progress for so many expected reports a run may have stalled …"""
STALL_PAUSES = 3.0
"""… if that is also so many times the longest pause it has made …"""
STALL_MIN_S = 30.0
"""… and at least so long."""


@dataclass(frozen=True, slots=True)
class RemainingEstimate:
    """What is left, in seconds, with an 80 % interval; None where nothing is known.

    Where no more than the most is known its lower end is 0, and its middle says nothing.
    """

    remaining_s: float | None
    low_s: float | None
    high_s: float | None
    overdue: float = 0.0
    """Of a run that may have stalled: time since its last progress, in expected reports."""


class RemainingTime:
    """Follows one attempt of a run.

    Args:
        prior_s: Predicted runtime of the whole run, in seconds.
        prior_low_s: Lower end of its 80 % interval.
        prior_high_s: Upper end of it.
        is_resumed: An earlier attempt may have done part of it.
        after: Of the logarithm of the seconds that runs like it went on when the first total that
            they told was reached; None where that is not known.
    """

    def __init__(
        self,
        prior_s: float | None = None,
        prior_low_s: float | None = None,
        prior_high_s: float | None = None,
        *,
        is_resumed: bool = False,
        after: NormalDist | None = None,
    ) -> None:
        usable = prior_s is not None and math.isfinite(prior_s) and prior_s > 0
        self._prior_s = prior_s if usable else None
        self._prior_sd = _prior_sd(prior_low_s, prior_high_s)
        self._history = History(is_resumed)
        self.may_end_early = False
        """The total is but the most that there will be."""
        self._usual: NormalDist | None = None
        self._after = after
        self._begin_s = 0.0
        self._course: Course | None = None
        self._done = 0.0

    def begin(self, t_s: float) -> None:
        """Its program begins at *t_s*: what was before is no part of its time.

        It begins once, and before it has done anything: a program may write what says so, too.
        """
        if self._begin_s == 0.0 and self._history.t_s == 0.0:
            self._begin_s = t_s

    def update(
        self,
        t_s: float,
        done: float,
        total: float | None = None,
        *,
        epoch: float | None = None,
        usual: NormalDist | None = None,
        took_s: float | None = None,
        course: Course | None = None,
    ) -> None:
        """Take in that *done* of *total* units were done at *t_s*.

        When *done* goes back the run began again: what is left is counted from
        there, and its speed is kept.

        Args:
            t_s: Seconds since the attempt's start; never decreasing.
            done: Units done in all.
            total: Units there will be in all; None where that is not known, or not any more.
            epoch: Epochs done in all, where the units are finer and it is known.
            usual: Of the logarithm of the units that runs like it had in all; it counts where
                no total is known, or only the most.
            took_s: Seconds that the newest unit took, as its program says itself.
            course: How runs like it change their speed; the same each time.
        """
        self._course, self._done = course, done
        if course is not None:
            done, total = course.weighed(done), total and course.weighed(total)
            usual, took_s = usual and course.law(usual), None
        self._usual = usual
        if done < 0.5 * self._history.done:
            self._after = None  # this is what comes after
        self._history.add(t_s - self._begin_s, done, total, epoch, took_s)

    def count_anew(self) -> None:
        """What is told from here on counts in another unit, also all that was done before."""
        self._history = History(self._history.is_resumed)

    def count_what_follows(self) -> None:
        """What is told from here on counts in another unit what is done from here on."""
        self._history = History(self._history.is_resumed, self._history.t_s)

    @property
    def ended_early(self) -> bool:
        """Whether less than the total was done; once the run has ended: early stopping."""
        history = self._history
        return history.total is not None and history.done < 0.995 * history.total

    @property
    def per_s(self) -> float | None:
        """Units a second, start-up left out; None before there is one interval."""
        seen = without_report_at_begin(self._history.intervals())
        settled = seen.since(startup_entries(seen))
        took_s = float(settled.units @ settled.unit_s)
        if self._course is not None:
            took_s *= self._course.weight(self._done)
        return float(settled.units.sum()) / took_s if took_s > 0.0 else None

    def at(self, t_s: float) -> RemainingEstimate:
        """What is left at *t_s*, which is at or after the last update."""
        history, t_s = self._history, max(t_s - self._begin_s, 0.0)
        waited_s = max(t_s - history.t_s, 0.0)
        if history.total is not None and history.done >= history.total:
            return self._after_all(t_s, waited_s)
        seen, rest = history.intervals(), self._units_left()
        if rest is None or len(seen.unit_s) == 0:
            return self._prior_alone(t_s)
        seen = without_report_at_begin(seen)
        longer = with_one_under_way(seen, waited_s)
        if history.may_have_begun and longer is None:
            return self._prior_alone(t_s)
        after = self._after_left(0.0) or _Left(0.0, 0.0, 0.0)
        left, total = rest.median, history.done + rest.median
        usual = speed = _Speed.of(seen, total, left)
        if longer is not None:
            speed = _Speed.of(longer, total, left)
        if history.may_have_begun:
            speed = replace(speed, sd=math.hypot(speed.sd, BEGUN_SD))
        if history.before_first_epoch_end:
            speed = speed.before_an_end()
        speed = replace(speed, sd=math.hypot(speed.sd, history.doubt / QUANTILE_80))
        if self._course is not None:
            sd, down = (math.hypot(each, COURSE_SD) for each in (speed.sd, speed.down))
            speed = replace(speed, sd=sd, down=down)
        speed = speed.for_units(rest._replace(low=rest.low or rest.median))
        remaining_s, up, down = self._blend(speed, left, total, after)
        # The unit, or pause, that is under way has used up part of its time already.
        credit_s = min(waited_s, speed.report_s + speed.due_s, 0.9 * remaining_s)
        # Who does much before it counts may do as much when it has: nobody has seen it end yet.
        before_s = history.began_s + speed.startup_s
        more_s = before_s if self._after is None else after.high
        # What takes longer than it should may take as long again.
        more_s += waited_s - credit_s
        high_s = remaining_s * math.exp(QUANTILE_80 * up) - credit_s + more_s
        remaining_s -= credit_s
        low_s = remaining_s / math.exp(QUANTILE_80 * down) + after.low if rest.low else 0.0
        overdue = waited_s / usual.report_s if waited_s > usual.stall_s else 0.0
        return RemainingEstimate(remaining_s + after.median, low_s, high_s, overdue)

    def _after_left(self, waited_s: float) -> "_Left | None":
        """Seconds that it will go on after its last unit, *waited_s* after that.

        None where no run has taught it, or for one that has gone on for longer than those.
        """
        return _left_of(self._after, waited_s) if self._after else None

    def _after_all(self, t_s: float, waited_s: float) -> RemainingEstimate:
        """What is left after the last unit: its program may have ended, or do something else."""
        rest = self._after_left(waited_s)
        return RemainingEstimate(rest.median, *rest[::2]) if rest else self._prior_alone(t_s)

    def _prior_alone(self, t_s: float) -> RemainingEstimate:
        """What is left of runs like it by their time alone."""
        rest = None
        if self._prior_s is not None:
            rest = _left_of(NormalDist(math.log(self._prior_s), self._prior_sd), t_s)
        if rest is None:
            return RemainingEstimate(None, None, None)
        return RemainingEstimate(rest.median, rest.low, rest.high)

    def _units_left(self) -> "_Left | None":
        """Units that are left: known, or by how many runs like it had in all.

        From 0 on where no more than the most is known.
        """
        history, rest = self._history, None
        known = history.total is not None and not self.may_end_early
        if self._usual is not None and not known:
            rest = _left_of(self._usual, history.done)
        if history.total is None:
            return rest
        most = history.total - history.done
        rest = rest or _Left(most if known else 0.0, most, most)
        return _Left(*(min(each, most) for each in rest))

    def _blend(
        self, speed: "_Speed", left: float, total: float, after: "_Left"
    ) -> tuple[float, float, float]:
        """Seconds left, and the standard deviation of their log upwards and downwards."""
        evidence_s = speed.left_s
        if self._prior_s is None:
            return evidence_s, speed.sd, speed.down
        # A slow start is part of what was predicted, and is over.
        rest_s = max(self._prior_s - speed.startup_s - after.median, 0.1 * self._prior_s)
        prior_s = max(rest_s * (left / total), 1e-9)
        # What it is off by in all it is off by in the rest, however little that is.
        prior_sd = self._prior_sd * self._prior_s / prior_s
        evidence_sd = max(speed.sd, speed.down)
        # The further away from what is seen, the less a prior is believed.
        apart = abs(math.log(prior_s) - math.log(evidence_s))
        prior_sd *= max(apart / (2.0 * math.hypot(evidence_sd, prior_sd)), 1.0)
        weight = evidence_sd**2 / (evidence_sd**2 + prior_sd**2)
        log_s = weight * math.log(prior_s) + (1.0 - weight) * math.log(evidence_s)
        # Where the two contradict each other, neither is as sure as it says.
        conflict = apart * weight * (1.0 - weight)
        up, down = (
            math.hypot(each * prior_sd / math.hypot(each, prior_sd), conflict)
            for each in (speed.sd, speed.down)
        )
        return math.exp(log_s), up, down


class _Left(NamedTuple):
    """Seconds or units that are left, with their interval of 80 %."""

    low: float
    median: float
    high: float


def _left_of(law: NormalDist, done: float) -> _Left | None:
    """What is left of runs like it of those that got as far, by the law of the log of the whole.

    Student's with the same interval, for a few runs do not tell how long the longest last. None for
    one that has outlasted nearly all of them.
    """
    scale, at = law.stdev * QUANTILE_80 / _T_80, math.log(max(done, 1e-9))
    goes_on_frac = float(stdtr(FREEDOM, (law.mean - at) / scale))
    if goes_on_frac < OUTLASTED:
        return None
    ends = law.mean - scale * stdtrit(FREEDOM, goes_on_frac * np.array([0.9, 0.5, 0.1]))
    return _Left(*np.maximum(np.exp(ends) - done, 0.0).tolist())


@dataclass(frozen=True, slots=True)
class _Speed:
    """What the evidence alone says."""

    left_s: float
    """Seconds left, pauses included."""
    sd: float
    """Standard deviation of the log of `left_s`."""
    down: float
    """The same downwards."""
    startup_s: float
    """What the start-up took longer than the same units will later."""
    report_s: float
    """Usual time between two updates."""
    due_s: float
    """How much longer the next one takes, for a pause that is due."""
    last_s: float
    """What may come after the last unit."""
    stall_s: float
    """Longer than this without progress is a stall."""

    def before_an_end(self) -> "_Speed":
        """The same where no epoch has ended yet: what comes at its end is not known."""
        return replace(
            self,
            left_s=(1.0 + FIRST_END) * self.left_s,
            sd=math.hypot(self.sd, FIRST_END_UP),
            down=math.hypot(self.down, FIRST_END_DOWN),
        )

    def for_units(self, rest: _Left) -> "_Speed":
        """The same where it is not known how many units are left."""
        up, down = (
            min(math.log(max(a, 1e-9) / max(b, 1e-9)) / QUANTILE_80, MOST_SD)
            for a, b in ((rest.high, rest.median), (rest.median, rest.low))
        )
        return replace(self, sd=math.hypot(self.sd, up), down=math.hypot(self.down, down))

    @staticmethod
    def of(seen: Intervals, total: float, left: float) -> "_Speed":
        first = startup_entries(seen)
        settled = seen.since(first)
        flags = pause_flags(settled.unit_s)
        level = level_of(settled, flags, first, total)
        ahead = pauses_ahead(settled, flags, level.unit_s, total, left)
        running_s = left * level.unit_s
        left_s = max(running_s + ahead.expected_s, 1e-9)
        up, down = (
            min(math.hypot(each * running_s / left_s, ahead.sd_s / left_s), MOST_SD)
            for each in (level.sd, level.down)
        )
        up = min(up + math.log1p(ahead.last_s / left_s) / QUANTILE_80, MOST_SD)
        slow = max(first, 1)  # the very first may have been one, though nothing shows it yet
        startup_s = float((seen.unit_s[:slow] - level.unit_s) @ seen.units[:slow])
        report_s = float(np.median(settled.units)) * level.unit_s
        lengths_s = settled.units * settled.unit_s
        longest_s = float(lengths_s.max()) if len(lengths_s) > 1 else 10.0 * float(lengths_s[0])
        stall_s = max(STALL_UNITS * report_s, STALL_PAUSES * longest_s, STALL_MIN_S)
        return _Speed(
            left_s, up, down, max(startup_s, 0.0), report_s, ahead.due_s, ahead.last_s, stall_s
        )


def _prior_sd(low_s: float | None, high_s: float | None) -> float:
    """Standard deviation of the log of the prior, from its 80 % interval."""
    if low_s is None or high_s is None or not 0 < low_s < high_s < math.inf:
        return PRIOR_SD
    return min(max(math.log(high_s / low_s) / (2 * QUANTILE_80), 0.02), 3.0)
