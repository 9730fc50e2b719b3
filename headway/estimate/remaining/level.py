"""Seconds per unit: past the start-up, without pauses."""

import math
from dataclasses import dataclass

import numpy as np

from headway.estimate.remaining.changes import LEAST_ENTRIES, mean_ahead
from headway.estimate.remaining.history import Array, Intervals

STARTUP_FACTOR = 1.5
"""At the beginning, slower than this many times what follows is start-up."""
STARTUP_FAR = 3.0
"""So many times slower early on is start-up even after a step that was not."""
STARTUP_ENTRIES = 8
"""So many at the beginning may be start-up even when little has followed them."""
STARTUP_LOG = 5.3
"""Natural logarithm of how many times slower the very first iteration usually is: 200."""
BELIEVED = 0.4
"""With this power of its units the doubt of a first report leaves the estimate for the interval."""
STARTUP_LOG_MOST = 6.7
"""Natural logarithm of how many times slower it is at most: 800."""
SPIKE_SDS = 4.0
"""So far above both its neighbours an entry stands out."""
WANDER = 0.007
"""Standard deviation of the log by which the mean of a whole run leaves what was seen."""
EARLY = 0.3
"""The same from one entry, by what may still be start-up."""
MIN_SD = 0.003
QUANTILE_80 = 1.2816
"""Half width of an 80 % interval, in standard deviations."""
MEDIAN_TO_SD = 0.6745
"""Median of the absolute value of a standard normal."""
FEW_ENTRIES = 12
"""Of fewer the mean square says little without its largest."""
BLOCKS = (8, 32, 128)
MIN_BLOCKS = 12


@dataclass(frozen=True, slots=True)
class Level:
    """The current speed."""

    unit_s: float
    sd: float
    """Standard deviation of the log of the mean over what is left."""
    down: float
    """The same downwards, where it may be another: what was seen may be start-up."""


def startup_entries(seen: Intervals) -> int:
    """How many entries at the beginning are start-up; at least one entry is left."""
    unit_s = seen.unit_s
    entries = len(unit_s)
    if entries < 2:
        return 0
    usual = float(np.median(unit_s[entries // 2 :]))
    judged = max(entries // 2, min(STARTUP_ENTRIES, entries - 3), 1)
    if entries <= STARTUP_ENTRIES:
        # So early most of what was seen may be start-up: the fastest is what follows.
        usual, judged = float(unit_s[1:].min()), entries - 1
    # A quiet run shows a start-up that a noisy one would hide.
    factor = min(max(1.0 + 4.0 * noise_of(unit_s[1:]), 1.04), STARTUP_FACTOR)
    slow = unit_s[:judged] > factor * usual
    # The last slow one of the first few counts: start-up is not always one piece.
    ends = np.flatnonzero(slow[: max(3, entries // 50)])
    if entries <= STARTUP_ENTRIES:
        ends = np.append(ends, np.flatnonzero(unit_s[:judged] > STARTUP_FAR * usual))
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
        return _first_guess(unit_s, units, startup, total)
    noise = noise_of(unit_s)
    # Among the newest, one that stands out alone is no change of speed yet.
    newest = unit_s[-LEAST_ENTRIES - 1 :]
    beside = np.maximum(newest[:-1], np.append(newest[2:], newest[-2]))
    newest = np.minimum(newest[1:], (1.0 + SPIKE_SDS * noise) * beside)
    unit_s = np.append(unit_s[: -len(newest)], newest)
    left = max(total - float(settled.end[-1]), 0.0)
    as_it_is, with_changes = mean_ahead(unit_s, units, noise, total, left)
    now_s = max(float(as_it_is.quantiles(0.5)[0]), 0.05 * float(np.median(unit_s)))
    low_s, high_s = with_changes.quantiles(0.1, 0.9)
    spread = max(high_s, now_s) / max(min(low_s, now_s), 0.1 * now_s)
    sd = math.log(spread) / (2.0 * QUANTILE_80)
    # What nothing shows yet: the rest scatters itself, and its speed wanders.
    scatter = noise * math.sqrt(float(np.median(units)) / max(left, 1e-9))
    wander = WANDER * math.sqrt(min(left / total, 1.0))
    early = EARLY / entries
    sd = math.sqrt(sd**2 + scatter**2 + wander**2 + early**2 + MIN_SD**2)
    return Level(now_s, sd, sd)


def _first_guess(unit_s: Array, units: Array, startup: int, total: float) -> Level:
    """From one to three entries, which may all be start-up.

    Many units: the first is often hundreds of times slower than the rest, and
    an estimate much too high is worse than one too low. Few units (epochs):
    the first is hardly slower. A report of many units has few slow ones among
    them, so that its mean says more, and what it may be too high is doubt.
    """
    fastest = int(unit_s.argmin())
    entries = len(unit_s)
    covered = max(float(units[fastest]), 1.0)
    many = min(max((math.log10(max(total, 1.0)) - 1.8) / 0.2, 0.0), 1.0)
    if entries == 1 and startup == 0:
        doubt = 0.15 + _shared(STARTUP_LOG, covered) * many
        most = _shared(STARTUP_LOG_MOST, covered) * many
    else:
        doubt = _shared((1.2, 0.6, 0.4)[entries - 1], covered) * many
        alike = float(unit_s.max()) < STARTUP_FACTOR * float(unit_s[fastest])
        if entries + (startup == 0) >= 3 and alike:
            doubt *= 0.1  # three alike are no start-up any more, nor two at the very beginning
        most = 2.0 * doubt
    believed = doubt / covered**BELIEVED
    return Level(
        float(unit_s[fastest]) * math.exp(-believed),
        sd=0.3 / entries + 0.7 * believed,
        down=0.3 / entries + 0.7 * max(most - believed, 0.15),
    )


def _shared(doubt: float, units: float) -> float:
    """Log by which the mean of so many *units* is too high when the first is by *doubt*."""
    return math.log1p(math.expm1(doubt) / units)


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
