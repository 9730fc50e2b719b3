"""Seconds per unit: past the start-up, without pauses, from as far back as it still holds."""

import math
from dataclasses import dataclass

import numpy as np

from headway.estimate.remaining_history import Array, Intervals

STARTUP_FACTOR = 1.5
"""At the beginning, slower than this many times what follows is start-up."""
STARTUP_ENTRIES = 8
"""So many at the beginning may be start-up even when little has followed them."""
STARTUP_LOG = 5.3
"""Natural logarithm of how many times slower the very first iteration usually is: 200."""
AGREE_SD = 2.3
"""Windows agree when they differ by less than so many standard errors."""
MIN_SD = 0.01
MEDIAN_TO_SD = 0.6745
"""Median of the absolute value of a standard normal."""
FEW_ENTRIES = 12
"""Of fewer the mean square says little without its largest."""
BLOCKS = (8, 32, 128)
MIN_BLOCKS = 12
TREND_ENTRIES = 12
"""Fewer show no trend."""
TREND_PARTS = 48
TREND_SURE = 3.0
"""So many standard errors make a slope."""
TREND_REACH = 1.5
"""A trend is carried on for so many times what it was seen over, and then no further."""


@dataclass(frozen=True, slots=True)
class Level:
    """The current speed."""

    unit_s: float
    sd: float
    """Standard deviation of the log of the mean over what is left."""


def startup_entries(seen: Intervals) -> int:
    """How many entries at the beginning are start-up; at least one entry is left."""
    unit_s = seen.unit_s
    entries = len(unit_s)
    if entries < 2:
        return 0
    usual = float(np.median(unit_s[entries // 2 :]))
    judged = max(entries // 2, min(STARTUP_ENTRIES, entries - 3), 1)
    # A quiet run shows a start-up that a noisy one would hide.
    factor = min(max(1.0 + 4.0 * noise_of(unit_s[1:]), 1.04), STARTUP_FACTOR)
    slow = unit_s[:judged] > factor * usual
    # The last slow one of the first few counts: start-up is not always one piece.
    ends = np.flatnonzero(slow[: max(3, entries // 50)])
    first = int(ends[-1]) + 1 if len(ends) else 0
    while first and first < len(slow) and slow[first]:
        first += 1
    return min(first, entries - 1)


def level_of(settled: Intervals, pauses: Array, startup: int, total: float) -> Level:
    """The speed now, from the entries that are no pauses.

    Args:
        settled: Intervals after the start-up.
        pauses: True where an interval holds a pause.
        startup: How many entries of start-up there were.
        total: Units of the whole run.
    """
    usual = ~pauses.astype(bool)
    unit_s, units = settled.unit_s[usual], settled.units[usual]
    entries = len(unit_s)
    if entries < 4:
        return _first_guess(unit_s, startup, total)
    noise = noise_of(unit_s)
    mean, window = _widest_agreeing(unit_s, units, noise)
    trend = _trend(unit_s, units, total - float(settled.end[-1]), noise)
    mean = mean if trend is None else trend
    error = noise / math.sqrt(window)
    left_frac = 1.0 - min(float(settled.end[-1]) / total, 1.0)
    # What no window shows yet: the speed itself wanders while the rest is run.
    wander = 0.04 * math.sqrt(left_frac)
    early = 0.6 / entries
    return Level(mean, math.sqrt(error**2 + wander**2 + early**2 + MIN_SD**2))


def _first_guess(unit_s: Array, startup: int, total: float) -> Level:
    """From one to three entries, which may all be start-up.

    Many units: the first is often hundreds of times slower than the rest, and
    an estimate much too high is worse than one too low. Few units (epochs):
    the first is hardly slower.
    """
    fastest = float(unit_s.min())
    entries = len(unit_s)
    many = min(max((math.log10(max(total, 1.0)) - 1.8) / 0.2, 0.0), 1.0)
    if entries == 1 and startup == 0:
        doubt = 0.15 + STARTUP_LOG * many
    else:
        doubt = (1.2, 0.6, 0.4)[entries - 1] * many
        if entries == 3 and float(unit_s.max()) < STARTUP_FACTOR * fastest:
            doubt *= 0.1  # three alike are no start-up any more
    return Level(fastest * math.exp(-doubt), 0.3 / entries + 0.7 * doubt)


def noise_of(unit_s: Array) -> float:
    """Standard deviation of the log of single entries, whatever their level does.

    From the differences of neighbours, so that a change of level does not raise
    it: by their median, and by their mean square without the two largest, which
    is more where some entries scatter far. Noise that remembers averages out more
    slowly than its entries say; blocks of them show how much more.
    """
    if len(unit_s) < 3:
        return STARTUP_FACTOR
    logs = np.log(unit_s)
    noise = max(float(np.median(np.abs(np.diff(logs)))) / MEDIAN_TO_SD / math.sqrt(2.0), 0.002)
    if len(unit_s) > FEW_ENTRIES:
        calm = np.sort(np.abs(np.diff(unit_s)))[:-2]
        noise = max(noise, math.sqrt(float(calm @ calm) / len(calm) / 2.0) / float(unit_s.mean()))
    for size in BLOCKS:
        count = len(logs) // size
        if count < MIN_BLOCKS:
            break
        means = logs[-count * size :].reshape(count, size).mean(axis=1)
        steps = np.diff(means)
        scatter = float(np.median(np.abs(steps - np.median(steps))))
        noise = max(noise, scatter / MEDIAN_TO_SD * math.sqrt(size / 2.0))
    return noise


def _trend(unit_s: Array, units: Array, left: float, noise: float) -> float | None:
    """Seconds per unit over what is left, if they have risen or fallen evenly all along.

    A straight line must explain the means of equal parts of the run better
    than the best single change of level, its slope must stand out of the
    noise, and both halves must have it.
    """
    entries = len(unit_s)
    if entries < TREND_ENTRIES:
        return None
    # Slow entries are no part of a trend, and would hide it.
    calm = np.minimum(unit_s, 2.0 * float(np.median(unit_s)))
    parts = min(max(entries // 6, 6), TREND_PARTS)
    cuts = np.linspace(0, entries, parts + 1).astype(int)[:-1]
    weight = np.add.reduceat(units, cuts)
    level = np.add.reduceat(calm * units, cuts) / weight
    place = np.cumsum(weight) - weight / 2.0
    slope, middle_s, rest = _line(place, level, weight)
    done = float(weight.sum())
    error = middle_s * noise * math.sqrt(12.0 / entries) / done
    half = parts // 2
    halves = [
        _line(*part)[0]
        for part in zip(
            *((values[:half], values[half:]) for values in (place, level, weight)), strict=True
        )
    ]
    if abs(slope) < TREND_SURE * error or min(h / slope for h in halves) < 0.25:
        return None
    if rest > _best_step(level, weight):
        return None
    sure = slope * slope / (slope * slope + error * error)
    now_s = float(unit_s @ units) / done + slope * done / 2.0
    ahead = min(left / 2.0, TREND_REACH * done)
    return min(max(now_s + sure * slope * ahead, 0.7 * now_s), 1.4 * now_s)


def _line(x: Array, y: Array, weight: Array) -> tuple[float, float, float]:
    """Weighted least squares: slope, mean of *y*, and the sum of squares that is left."""
    total = float(weight.sum())
    mean = float(y @ weight) / total
    dx, dy = x - float(x @ weight) / total, y - mean
    slope = float((dx * dy) @ weight) / float((dx * dx) @ weight)
    rest = dy - slope * dx
    return slope, mean, float((rest * rest) @ weight)


def _best_step(y: Array, weight: Array) -> float:
    """The sum of squares that the best single change of level leaves."""
    seconds, count = np.cumsum(y * weight), np.cumsum(weight)
    total = float((y * y) @ weight)
    before = seconds[:-1] ** 2 / count[:-1]
    after = (seconds[-1] - seconds[:-1]) ** 2 / (count[-1] - count[:-1])
    return total - float(np.max(before + after))


def _widest_agreeing(unit_s: Array, units: Array, noise: float) -> tuple[float, int]:
    """Mean and length of the widest recent window that agrees with all narrower ones.

    The rule of intersecting confidence intervals (Goldenshluger and Nemirovski,
    1997): windows grow from the newest entry back; each gives an interval of
    ± `AGREE_SD` standard errors for the mean; growth stops when they no longer
    have a point in common.
    """
    newest, weights = unit_s[::-1], units[::-1]
    entries = len(newest)
    spread = max(noise, 0.005)
    seconds, count = np.cumsum(newest * weights), np.cumsum(weights)
    best, window = float(seconds[0] / count[0]), 1
    low, high = 0.0, math.inf
    size = 4
    while True:
        size = min(size, entries)
        mean = float(seconds[size - 1] / count[size - 1])
        error = AGREE_SD * spread * mean / math.sqrt(size)
        low, high = max(low, mean - error), min(high, mean + error)
        if low > high and window > 1:
            break
        best, window = mean, size
        if size == entries:
            break
        size = int(size * 1.5)
    return best, window
