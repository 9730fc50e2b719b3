"""Remaining time: the prior at first, then the pace that is seen.

The first iterations of a run are hundreds of times slower than the others
(measured on 982 ResNet-50 series: the mean of all is off by 96 % after a tenth
of the run, the median by 1.5 %). So the pace is a median over recent
iterations; what pauses cost beyond it (validation, checkpoints) is added at
the rate at which they were seen, the start left out.
"""

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

WINDOW = 64
"""Recent steps whose median is the pace."""
_MIN_PAUSE_SHARE = 3.0
"""A step counts as a pause when it took more than so many times the pace."""
_TRUST_AFTER = 5
"""With so many steps seen, pace and prior weigh the same."""
_Z80 = 1.2816
"""Standard normal quantile of an 80 % interval's ends."""


@dataclass(frozen=True, slots=True)
class RemainingEstimate:
    """Seconds to go, with an 80 % interval; None where nothing is known."""

    remaining_s: float | None
    low_s: float | None
    high_s: float | None


class RemainingTime:
    """Told what is done when, says what is left."""

    def __init__(
        self,
        prior_s: float | None,
        prior_low_s: float | None = None,
        prior_high_s: float | None = None,
    ) -> None:
        """Begin with what was predicted for the whole run, in seconds; None when nothing was."""
        self._prior = (prior_s, prior_low_s, prior_high_s)
        self._last: tuple[float, float] | None = None
        self._total: float | None = None
        # Of each recent report: seconds a unit took, and how many units it covered.
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._steps = 0
        self._excess_s = 0.0
        self._covered = 0.0

    def update(self, t_s: float, done: float, total: float | None) -> None:
        """At *t_s* seconds into the run, *done* of *total* units are done."""
        if total:
            self._total = total
        if self._last is None:
            self._last = (t_s, done)
            return
        before_s, before = self._last
        units = done - before
        if units <= 0 or t_s < before_s:
            return
        self._last = (t_s, done)
        unit_s = (t_s - before_s) / units
        pace_s = self._pace_s()
        if pace_s is not None and self._steps >= WINDOW // 8:
            self._covered += units
            if unit_s > _MIN_PAUSE_SHARE * pace_s:
                # What a pause costs beyond the pace; the pace itself ignores it.
                self._excess_s += (unit_s - pace_s) * units
        self._recent.append((unit_s, units))
        self._steps += 1

    def at(self, t_s: float) -> RemainingEstimate:
        """What is left at *t_s* seconds into the run."""
        prior = self._from_prior(t_s)
        seen = self._from_pace(t_s)
        if seen is None or seen.remaining_s is None:
            return prior
        if prior.remaining_s is None:
            return seen
        weight = self._steps**2 / (self._steps**2 + _TRUST_AFTER**2)
        # Shares of time multiply, so the blend is made of logarithms.
        return RemainingEstimate(
            *(
                None if a is None or b is None else _blend(a, b, weight)
                for a, b in (
                    (seen.remaining_s, prior.remaining_s),
                    (seen.low_s, prior.low_s),
                    (seen.high_s, prior.high_s),
                )
            )
        )

    def _pace_s(self) -> float | None:
        return median(unit_s for unit_s, _ in self._recent) if self._recent else None

    def _from_pace(self, t_s: float) -> RemainingEstimate | None:
        pace_s = self._pace_s()
        if pace_s is None or self._last is None or self._total is None:
            return None
        seen_s, done = self._last
        left = max(self._total - done, 0.0)
        pauses_s = self._excess_s / self._covered if self._covered else 0.0
        since_s = min(t_s - seen_s, pace_s)
        remaining_s = max(left * (pace_s + pauses_s) - max(since_s, 0.0), 0.0)
        spread = self._spread(pace_s)
        return RemainingEstimate(
            remaining_s, remaining_s * math.exp(-spread), remaining_s * math.exp(spread)
        )

    def _spread(self, pace_s: float) -> float:
        """Half width of the interval, as a logarithm: from the recent steps' own scatter."""
        off = [abs(math.log(max(u, 1e-9) / max(pace_s, 1e-9))) for u, _ in self._recent]
        # 1.4826 × the median deviation estimates a standard deviation robustly.
        sigma = 1.4826 * median(off)
        return _Z80 * (sigma / math.sqrt(len(off)) + 0.02 + 0.3 / (1 + self._steps))

    def _from_prior(self, t_s: float) -> RemainingEstimate:
        prior_s, low_s, high_s = self._prior
        if prior_s is None:
            return RemainingEstimate(None, None, None)
        # Past its prediction a run is expected to need a little more, not nothing.
        left = max(prior_s - t_s, 0.05 * prior_s)
        low = max((prior_s if low_s is None else low_s) - t_s, 0.0)
        high = max((prior_s if high_s is None else high_s) - t_s, left)
        return RemainingEstimate(left, low, high)


def _blend(seen_s: float, prior_s: float, weight: float) -> float:
    if seen_s <= 0.0:
        return 0.0
    return math.exp(weight * math.log(seen_s) + (1 - weight) * math.log(max(prior_s, 1e-3)))
