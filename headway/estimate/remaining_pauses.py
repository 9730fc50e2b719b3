"""Pauses: validation, checkpoints, and whatever else stops a run again and again."""

import math

import numpy as np

from headway.estimate.remaining_history import Array, Intervals

PAUSE_FACTOR = 2.0
"""An interval slower than this many times its neighbourhood holds a pause."""
NEIGHBOURS = 15
"""Entries on each side that make the neighbourhood."""


def pause_flags(unit_s: Array) -> Array:
    """1.0 where an interval holds a pause, else 0.0.

    Four in a row are no pause but a slow-down.
    """
    entries = len(unit_s)
    if entries < 3:
        return np.zeros(entries)
    width = min(2 * NEIGHBOURS + 1, entries | 1)
    padded = np.pad(unit_s, width // 2, mode="reflect" if entries > width // 2 else "edge")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)[:entries]
    slow = unit_s > PAUSE_FACTOR * around
    if entries >= 4:
        run = np.lib.stride_tricks.sliding_window_view(np.pad(slow, (3, 0)), 4).all(axis=1)
        for last in np.flatnonzero(run):
            slow[max(last - 3, 0) : last + 1] = False
    return slow.astype(np.float64)


def pauses_ahead(
    settled: Intervals, pauses: Array, unit_s: float, total: float, left: float
) -> tuple[float, float]:
    """Seconds of pauses still to come, and their standard deviation in seconds.

    Pauses are grouped by length (within a factor of two). A group that comes
    at a steady distance goes on so; any other goes on at its rate so far.
    """
    at = np.flatnonzero(pauses)
    if len(at) == 0:
        return 0.0, 0.0
    extra_s = (settled.unit_s[at] - unit_s) * settled.units[at]
    place = settled.end[at] - settled.units[at]
    keep = extra_s > 0
    extra_s, place = extra_s[keep], place[keep]
    if len(extra_s) == 0:
        return 0.0, 0.0
    expected_s, variance = 0.0, 0.0
    done = total - left
    for group in _groups(extra_s):
        count, sd = _times_ahead(place[group], done, total)
        mean_s = float(np.mean(extra_s[group][-20:]))
        spread_s = float(np.std(extra_s[group][-20:])) if len(group) > 1 else 0.3 * mean_s
        expected_s += count * mean_s
        variance += (sd * mean_s) ** 2 + count * spread_s**2 + (count * spread_s) ** 2 / len(group)
    return expected_s, math.sqrt(variance)


def _groups(extra_s: Array) -> list[Array]:
    """Indices of pauses of about the same length, each group in order of time."""
    order = np.argsort(extra_s)
    cuts = np.flatnonzero(np.diff(np.log(extra_s[order])) > math.log(2.0)) + 1
    return [np.sort(group) for group in np.split(order, cuts)]


def _times_ahead(place: Array, done: float, total: float) -> tuple[float, float]:
    """How often a group will come again, and the standard deviation of that."""
    left = total - done
    gaps = np.diff(place)
    if len(place) >= 2:
        period = float(np.median(gaps))
        steady = period > 0 and float(np.median(np.abs(gaps - period))) <= 0.1 * period
        # Overdue by half a period: it does not come at that distance any more.
        if steady and done - float(place[-1]) < 1.5 * period:
            times = math.floor((total - 1e-9 - float(place[-1])) / period)
            return float(max(times, 0)), 0.3
    elif float(place[0]) > 0 and done < 2.2 * float(place[0]):
        # One so far: the first of many that come at the same distance, or the only one.
        times = max(math.floor((total - 1e-9) / float(place[0])) - 1, 0)
        return 0.8 * times, 0.5 * times + 0.3
    rate = len(place) / max(done, 1.0)
    return rate * left, math.sqrt(rate * left) + rate * left / math.sqrt(len(place)) / 2
