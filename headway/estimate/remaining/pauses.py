"""Pauses: validation, checkpoints, and whatever else stops a run again and again."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

from headway.estimate.remaining.history import Array, Intervals
from headway.estimate.remaining.level import STARTUP_ENTRIES, noise_of

PAUSE_FACTOR = 2.0
"""An interval slower than this many times its neighbourhood holds a pause."""
NOISE_SDS = 4.0
"""One in which an epoch ended holds a pause when it is so far above the noise …"""
MOST_HOLD_AN_END = 0.3
"""… and at most so many do."""
NEIGHBOURS = 15
"""Entries on each side that make the neighbourhood."""
COMMON = 0.04
"""What more than this share of the entries does at random is no pause."""
COMB_NEWEST = 6
"""Among so many of the newest pauses of one kind a steady distance is looked for."""
COMB_SLACK = 0.02
"""A pause may be so much of the distance away from where it is due."""
COMB_MET = 0.9
"""So many of the pauses that were due must have come."""
FIRST_OF_MANY = 0.6
"""How likely a pause that came once is the first of many."""
ONE_IN_MANY = 0.7
"""For what a kind of pause that has come once counts: that it was seen at all was luck."""


def pause_flags(unit_s: Array) -> Array:
    """1.0 where an interval holds a pause, else 0.0.

    Four in a row are no pause but a slow-down.
    """
    entries = len(unit_s)
    if entries < 3:
        return np.zeros(entries)
    slow = unit_s > PAUSE_FACTOR * _around(unit_s)
    if entries >= 4:
        run = np.lib.stride_tricks.sliding_window_view(np.pad(slow, (3, 0)), 4).all(axis=1)
        for last in np.flatnonzero(run):
            slow[max(last - 3, 0) : last + 1] = False
    return np.asarray(slow, dtype=np.float64)


def _around(unit_s: Array) -> Array:
    """What is usual in the neighbourhood of each interval."""
    entries = len(unit_s)
    width = min(2 * NEIGHBOURS + 1, entries | 1)
    mode = "mirror" if entries > width // 2 else "nearest"
    return np.asarray(median_filter(unit_s, width, mode=mode), dtype=np.float64)


def at_epoch_ends(settled: Intervals, pauses: Array) -> Array:
    """*pauses*, and the intervals in which an epoch ended that are slower than their like.

    A long report hides the pause in it, yet it is known to be there. Where
    most reports hold an epoch's end it is part of their mean.
    """
    holds, entries = settled.holds_end, len(pauses)
    if holds is None or entries < 3 or not 0 < holds.mean() <= MOST_HOLD_AN_END:
        return pauses
    factor = min(1.0 + NOISE_SDS * noise_of(settled.unit_s[~holds]), PAUSE_FACTOR)
    return np.maximum(pauses, holds & (settled.unit_s > factor * _around(settled.unit_s)))


def pauses_ahead(
    settled: Intervals, pauses: Array, unit_s: float, total: float, left: float
) -> tuple[float, float]:
    """Seconds of pauses still to come, and their standard deviation in seconds.

    Pauses are grouped by length (within a factor of two). Those of a group that
    come at a steady distance go on so, also where another kind falls on the
    same place now and then; the others go on at their rate so far.
    """
    at = np.flatnonzero(pauses)
    extra_s = (settled.unit_s[at] - unit_s) * settled.units[at]
    at, extra_s = at[extra_s > 0], extra_s[extra_s > 0]
    if len(at) == 0:
        return 0.0, 0.0
    place = settled.end[at]
    blur = float(settled.units[at].max())
    expected_s, variance = 0.0, 0.0
    for group in _groups(extra_s):
        times = _Times.of(place[group], place, total - left, total, blur)
        mean_s = float(np.mean(extra_s[group]))
        spread_s = float(np.std(extra_s[group])) if len(group) > 1 else 0.3 * mean_s
        expected_s += times.count * mean_s
        variance += (times.sd * mean_s) ** 2
        variance += times.count * spread_s**2 * (1.0 + times.count / len(group))
    return expected_s, math.sqrt(variance)


def without_common(settled: Intervals, pauses: Array) -> Array:
    """*pauses* without those that are many and at no steady distance.

    Such slow entries are how the run is (a loader that starves it at random,
    texts of different lengths): no pauses, but part of the mean.
    """
    at = np.flatnonzero(pauses)
    if len(at) < 4 or len(at) < COMMON * len(pauses):
        return pauses
    place, units, done = settled.end[at], settled.units[at], float(settled.end[-1])
    blur = float(units.max())
    if _steady(place, place, done, blur):
        return pauses
    extra_s = np.maximum(settled.unit_s[at] / float(np.median(settled.unit_s)) - 1.0, 1e-9) * units
    groups = _groups(extra_s)
    at_random = [at[group] for group in groups if not _steady(place[group], place, done, blur)]
    if sum(map(len, at_random)) < max(4.0, COMMON * len(pauses)):
        return pauses
    kept = pauses.copy()
    kept[np.concatenate(at_random)] = 0.0
    return kept


def _steady(place: Array, any_place: Array, done: float, blur: float) -> bool:
    """Whether nearly all pauses at *place* come at one or more steady distances."""
    rest = place
    while (comb := _comb(rest, any_place, done, blur)) is not None:
        rest = rest[~comb[1]]
    return len(rest) < 0.2 * len(place)


def _groups(extra_s: Array) -> list[Array]:
    """Indices of pauses of about the same length, each group in order of time."""
    order = np.argsort(extra_s)
    cuts = np.flatnonzero(np.diff(np.log(extra_s[order])) > math.log(2.0)) + 1
    return [np.sort(group) for group in np.split(order, cuts)]


@dataclass(frozen=True, slots=True)
class _Times:
    """How often pauses of one kind will come again."""

    count: float
    sd: float

    @staticmethod
    def of(place: Array, any_place: Array, done: float, total: float, blur: float) -> "_Times":
        """What is to come after those at *place*, which are some of *any_place*.

        Args:
            place: Units done at each pause of this kind.
            any_place: The same for all pauses.
            done: Units done now.
            total: Units of the whole run.
            blur: How exactly places are known, in units.
        """
        count, variance = 0.0, 0.0
        rest = place
        while (comb := _comb(rest, any_place, done, blur)) is not None:
            period, hits, share, last = comb
            times = max(math.floor((total - last) / period + 1e-6), 0)
            count += share * times
            variance += 0.1 + (1.0 - share) * times
            rest = rest[~hits]
        # What came only at the very beginning, and at no steady distance, was start-up.
        rest = rest[rest > STARTUP_ENTRIES * blur]
        if len(rest) == 1 and len(place) == 1 and done < 2.1 * float(place[0]):
            # One so far: the first of many that come at the same distance, or the only one.
            times = max(math.floor(total / max(float(place[0]), 1.0)) - 1, 0)
            rate = (total - done) / max(done, 1.0)
            return _Times(FIRST_OF_MANY * times + (1.0 - FIRST_OF_MANY) * rate, 0.5 * times + 0.3)
        seen = ONE_IN_MANY if len(rest) == 1 else len(rest)
        rate = seen * (total - done) / max(done, 1.0)
        if len(rest):
            variance += rate + rate * rate / len(rest) / 4.0
        return _Times(count + rate, math.sqrt(variance))


def _comb(
    place: Array, any_place: Array, done: float, blur: float
) -> tuple[float, npt.NDArray[np.bool_], float, float] | None:
    """The shortest steady distance among the newest of *place*.

    Returns:
        The distance, which of *place* lie on it, and what share of all the
        places on it they are, and the newest of those; None when there is no
        such distance.
    """
    newest = place[-COMB_NEWEST:]
    if len(newest) < 2:
        return None
    first, last = np.triu_indices(len(newest), 1)
    gaps = newest[last] - newest[first]
    periods = np.unique(np.concatenate((gaps, gaps / (last - first))))
    for period in periods[periods > 2.0 * blur].tolist():
        slack = max(COMB_SLACK * period, blur)
        for anchor in newest[-2:].tolist():
            on = _on_comb(place, anchor, period, slack)
            begin = float(place[on][0])
            # From the beginning on, two are enough; in the middle they might be chance.
            needed = 2 if abs(begin - period) <= slack else 3 if begin < 1.5 * period else 5
            if int(on.sum()) < needed:
                continue
            steps = np.unique(
                np.round((any_place - anchor) / period)[_on_comb(any_place, anchor, period, slack)]
            )
            due = math.floor((done - slack - begin) / period) + 1
            met = int(np.sum(steps >= round((begin - anchor) / period)))
            if met >= COMB_MET * due and done < newest[-1] + 1.5 * period:
                share = min(float(on.sum()) / max(met, 1), 1.0)
                return period, on, share, anchor + period * float(steps[-1])
    return None


def _on_comb(place: Array, anchor: float, period: float, slack: float) -> npt.NDArray[np.bool_]:
    away = (place - anchor) / period
    return np.asarray(np.abs(away - np.round(away)) * period <= slack)
