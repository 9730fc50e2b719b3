"""Remaining time from the prior and from the pace that is seen."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemainingEstimate:
    """Seconds to go; None where nothing is known."""

    remaining_s: float | None
    low_s: float | None
    high_s: float | None


class RemainingTime:
    """Told what is done, says what is left."""

    def __init__(
        self, prior_s: float | None, prior_low_s: float | None, prior_high_s: float | None
    ) -> None:
        """Begin with what the estimator said of the whole run."""
        self._prior = (prior_s, prior_low_s, prior_high_s)
        self._last: tuple[float, float, float] | None = None

    def update(self, t_s: float, done: float, total: float | None) -> None:
        """At *t_s*, *done* of *total* are done."""
        if total and done > 0:
            self._last = (t_s, done, total)

    def at(self, t_s: float) -> RemainingEstimate:
        """What is left at *t_s*."""
        if self._last is not None:
            seen_s, done, total = self._last
            left_s = max(seen_s / done * (total - done) - (t_s - seen_s), 0.0)
            return RemainingEstimate(left_s, None, None)
        return RemainingEstimate(*(None if p is None else max(p - t_s, 0.0) for p in self._prior))
