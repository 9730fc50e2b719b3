"""Seconds per unit: past the start-up, without pauses."""

import math
from dataclasses import dataclass, replace

import numpy as np

from headway.estimate.remaining.changes import LEAST_ENTRIES, mean_ahead
from headway.estimate.remaining.history import Array, Intervals

STARTUP_FACTOR = 1.5
"""At the beginning, slower than this many times what follows is start-up."""
STARTUP_ENTRIES = 8
"""Of at most so many entries the fastest says what follows: most may be start-up. Nor does a
pause among so many first ones say that others will come."""
FIRST_LOG = 5.3
"""Natural logarithm of how many times slower the very first iteration usually is: 200."""
FIRST_LOG_MOST = 6.7
"""Natural logarithm of how many times slower it is at most: 800."""
NEXT_LOG = (1.2, 0.6, 0.4)
"""The same for the fastest of one, two or three entries of which it is not the very first."""
BELIEVED_POWER = 0.4
"""How fast the share of that doubt by which a first guess is lowered shrinks with the units that a
report covers; the rest is in the interval, downwards. Of 20 of 200 units after 14 s it makes 58 s
(126 s without a start-up, 12 s after one of ten seconds)."""
FEW_UNITS, MANY_UNITS = 60, 100
"""Runs of fewer units (epochs) have a first one that is hardly slower; of more, one as above."""
SPIKE_SDS = 4.0
"""Standard deviations away from both its neighbours at which an entry stands out."""
FEW_SEEN = 3
"""Of so few entries none is known to be usual."""
UNSEEN_SD = 0.05
"""Standard deviation of the log by which the rest of a whole run leaves what was seen: what
nothing has shown yet. With it four of five intervals hold on the made-up and the real runs."""
EARLY_SD = 0.5
"""The same after a single entry, and so much less after more: what is left of the start-up."""
QUANTILE_80 = 1.2816
"""Half width of an 80 % interval, in standard deviations."""
MEDIAN_TO_SD = 0.6745
"""Median of the absolute value of a standard normal."""
LEAST_NOISE = 0.002
"""Standard deviation of the log of single entries; less is not believed."""
FEW_ENTRIES = 12
"""Of fewer the mean square says little without its largest."""


@dataclass(frozen=True, slots=True)
class Level:
    """The current speed."""

    unit_s: float
    sd: float
    """Standard deviation of the log of the mean over what is left."""
    down: float
    """The same downwards, where it may be another: what was seen may be start-up."""


def without_report_at_begin(seen: Intervals) -> Intervals:
    """*seen* without a first entry much shorter than all others.

    It is of a program that reports each unit as it begins: nothing was done in it.
    """
    others = seen.unit_s[1:]
    begins = len(others) > 0 and seen.unit_s[0] * STARTUP_FACTOR < others.min()
    return replace(seen.since(1), begun=True) if begins else seen


def with_one_under_way(seen: Intervals, waited_s: float) -> Intervals | None:
    """*seen* and what is under way, where it takes longer than the few that were seen; else None.

    Args:
        seen: Where it is more than a few entries, one that takes longer is a pause or a stall.
        waited_s: Seconds since the last of them.
    """
    if len(seen.unit_s) > FEW_SEEN or waited_s <= (seen.units * seen.unit_s).max():
        return None
    units = float(np.median(seen.units))
    longer = Intervals(
        np.append(seen.units, units),
        np.append(seen.unit_s, waited_s / units),
        np.append(seen.end, seen.end[-1] + units),
        seen.begun,
    )
    return without_report_at_begin(longer)


def startup_entries(seen: Intervals) -> int:
    """How many entries at the beginning are start-up: those before the first usual one."""
    unit_s, half = seen.unit_s, len(seen.unit_s) // 2
    if half == 0:
        return 0
    follows = unit_s[half:] if len(unit_s) > STARTUP_ENTRIES else unit_s[1:].min(keepdims=True)
    usual = np.flatnonzero(unit_s[:half] <= STARTUP_FACTOR * float(np.median(follows)))
    return int(usual[0]) if len(usual) else half


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
        is_first = entries == 1 and startup == 0 and not settled.begun
        return _first_guess(unit_s, units, startup, total, is_first=is_first)
    noise = noise_of(unit_s)
    # Among the newest, one that stands out alone is no change of speed yet.
    newest = _calmed(unit_s[-LEAST_ENTRIES - 1 :], 1.0 + SPIKE_SDS * noise)
    unit_s = np.append(unit_s[: -len(newest)], newest)
    left = max(total - float(settled.end[-1]), 0.0)
    low_s, median_s, high_s = mean_ahead(unit_s, units, noise, total, left).quantiles(0.1, 0.5, 0.9)
    now_s = max(float(median_s), 0.05 * float(np.median(unit_s)))
    spread = max(float(high_s), now_s) / max(min(float(low_s), now_s), 0.1 * now_s)
    sd = math.log(spread) / (2.0 * QUANTILE_80)
    scatter = noise * math.sqrt(float(np.median(units)) / max(left, 1e-9))
    unseen = UNSEEN_SD * math.sqrt(min(left / total, 1.0))
    sd = math.sqrt(sd**2 + scatter**2 + unseen**2 + (EARLY_SD / entries) ** 2)
    return Level(now_s, sd, sd)


def _calmed(newest: Array, factor: float) -> Array:
    """All but the first of *newest*, none further than *factor* from what is on both its sides.

    The very last one has one side: it is a first sign of another speed, or a bar's last update
    with what was left of an epoch.
    """
    before, behind = newest[:-2], newest[2:]
    least, most = np.minimum(before, behind) / factor, np.maximum(before, behind) * factor
    calm = np.clip(newest[1:-1], least, most)
    return np.append(calm, np.clip(newest[-1], calm[-1] / factor, calm[-1] * factor))


def _first_guess(
    unit_s: Array, units: Array, startup: int, total: float, *, is_first: bool
) -> Level:
    """From one to three entries, which may all be start-up.

    Many units: the first is often hundreds of times slower than the rest, and
    an estimate much too high is worse than one too low. Few units (epochs):
    the first is hardly slower, so that the mean counts, without those that are
    much slower than the fastest. A report of many units has few slow ones among
    them, so that its mean says more, and what it may be too high is doubt.
    """
    fastest = int(unit_s.argmin())
    entries = len(unit_s)
    covered = max(float(units[fastest]), 1.0)
    many = math.log(max(total, 1.0) / FEW_UNITS) / math.log(MANY_UNITS / FEW_UNITS)
    many = min(max(many, 0.0), 1.0)
    alike = unit_s < STARTUP_FACTOR * unit_s[fastest]
    usual_s = float(unit_s[alike] @ units[alike]) / float(units[alike].sum())
    if is_first:
        doubt = _shared(FIRST_LOG, covered) * many
        most = _shared(FIRST_LOG_MOST, covered) * many
    else:
        doubt = _shared(NEXT_LOG[entries - 1], covered) * many
        if entries + (startup == 0) >= 3 and alike.all():
            doubt *= 0.1  # three alike are no start-up any more, nor two at the very beginning
        most = 2.0 * doubt
    believed = doubt / covered**BELIEVED_POWER
    return Level(
        float(unit_s[fastest]) ** many * usual_s ** (1.0 - many) * math.exp(-believed),
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
    is more where some entries scatter far.
    """
    if len(unit_s) < 3:
        return STARTUP_FACTOR
    steps = np.abs(np.diff(np.log(unit_s)))
    noise = max(float(np.median(steps)) / MEDIAN_TO_SD / math.sqrt(2.0), LEAST_NOISE)
    if len(unit_s) > FEW_ENTRIES:
        calm = np.sort(np.abs(np.diff(unit_s)))[:-2]
        noise = max(noise, math.sqrt(float(calm @ calm) / len(calm) / 2.0) / float(unit_s.mean()))
    return noise
