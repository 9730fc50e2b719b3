"""Pauses: validation, checkpoints, and whatever else stops a run again and again."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

from headway.estimate.remaining.history import Array, Intervals
from headway.estimate.remaining.level import STARTUP_ENTRIES

PAUSE_FACTOR = 2.0
"""An interval slower than this many times its neighbourhood holds a pause."""
NEIGHBOURS = 15
"""Entries on each side that make the neighbourhood."""
COMB_NEWEST = 6
"""Among so many of the newest pauses of one kind a steady distance is looked for."""
COMB_SLACK = 0.02
"""A pause may be so much of the distance away from where it is due."""
COMB_MET = 0.9
"""So many of the pauses that were due must have come."""


class PausesAhead(NamedTuple):
    """Seconds of the pauses that are still to come."""

    expected_s: float = 0.0
    sd_s: float = 0.0
    due_s: float = 0.0
    """Of them, those that are due now."""
    last_s: float = 0.0
    """Not among them: those that would begin at the very end. A validation comes there too, the
    loading of the next data does not."""


def pause_flags(unit_s: Array) -> Array:
    """1.0 where an interval holds a pause, else 0.0.

    Four in a row are no pause but a slow-down.
    """
    entries = len(unit_s)
    if entries < 3:
        return np.zeros(entries)
    width = min(2 * NEIGHBOURS + 1, entries | 1)
    mode = "mirror" if entries > width // 2 else "nearest"
    slow = unit_s > PAUSE_FACTOR * median_filter(unit_s, width, mode=mode)
    if entries >= 4:
        run = np.lib.stride_tricks.sliding_window_view(np.pad(slow, (3, 0)), 4).all(axis=1)
        for last in np.flatnonzero(run):
            slow[max(last - 3, 0) : last + 1] = False
    return np.asarray(slow, dtype=np.float64)


def pauses_ahead(
    settled: Intervals, pauses: Array, unit_s: float, total: float, left: float
) -> PausesAhead:
    """What pauses are still to come.

    Pauses are grouped by length (within a factor of two). Those of a group that
    come at a steady distance go on so, also where another kind falls on the
    same place now and then; the others go on at their rate so far.
    """
    at = np.flatnonzero(pauses)
    extra_s = (settled.unit_s[at] - unit_s) * settled.units[at]
    at, extra_s = at[extra_s > 0], extra_s[extra_s > 0]
    if len(at) == 0:
        return PausesAhead()
    place, blur = settled.end[at], float(settled.units[at].max())
    ahead_s, variance_s2, due_s, last_s = 0.0, 0.0, 0.0, 0.0
    for group in _groups(extra_s):
        count, variance, is_due, is_last = _times_ahead(
            place[group], place, total - left, total, blur
        )
        mean_s = float(np.mean(extra_s[group]))
        spread_s = float(np.std(extra_s[group])) if len(group) > 1 else 0.3 * mean_s
        ahead_s += count * mean_s
        due_s += is_due * mean_s
        last_s += is_last * mean_s
        variance_s2 += variance * mean_s**2 + count * spread_s**2 * (1.0 + count / len(group))
    return PausesAhead(ahead_s, math.sqrt(variance_s2), due_s, last_s)


def _groups(extra_s: Array) -> list[npt.NDArray[np.intp]]:
    """Indices of pauses of about the same length, each group in order of time."""
    order = np.argsort(extra_s)
    cuts = np.flatnonzero(np.diff(np.log(extra_s[order])) > math.log(2.0)) + 1
    return [np.sort(group) for group in np.split(order, cuts)]


def _times_ahead(
    place: Array, any_place: Array, done: float, total: float, blur: float
) -> tuple[float, float, bool, bool]:
    """How many pauses of one kind are to come, and the variance of that.

    And whether one of them is due now, and whether one would begin at the very end.

    Args:
        place: Units done at each pause of this kind.
        any_place: The same for all pauses.
        done: Units done now.
        total: Units of the whole run.
        blur: How exactly places are known, in units.
    """
    count, variance, is_due, is_last = 0.0, 0.0, False, False
    rest = place
    while (comb := _comb(rest, any_place, done, blur)) is not None:
        period, hits, share, last = comb
        times = max(math.floor((total - last) / period + 1e-6), 0)
        count += share * times
        variance += 0.1 + (1.0 - share) * times
        is_due |= times > 0 and last + period - blur <= done
        is_last |= last + (times + 1) * period - blur <= total
        rest = rest[~hits]
    # What came only at the very beginning, and at no steady distance, was start-up.
    rest = rest[rest > STARTUP_ENTRIES * blur]
    rate = len(rest) * (total - done) / max(done, 1.0)
    if len(rest):
        variance += rate + rate * rate / len(rest) / 4.0
    return count + rate, variance, is_due, is_last


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
