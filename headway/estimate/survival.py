"""How long things last where some of them are not over yet: the estimator of Kaplan and Meier.

Those that last longest are the last to end. Who learns from ended ones alone takes everything for
shorter than it is; here what still goes on counts for as long as it was seen. Cheap to import.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Survival:
    """The distribution of an amount, of which some were seen to their end and others not."""

    ends: tuple[float, ...] = ()
    """Where something ended, ascending."""
    ended_frac: tuple[float, ...] = field(default=(), repr=False)
    """Up to each of them, the share that has ended; the last is below 1 where the longest go on."""

    @classmethod
    def of(cls, seen: Iterable[tuple[float, bool]]) -> "Survival":
        """Learn from amounts, each with whether it was seen to its end."""
        # What goes on at the moment at which another ends was there until after that end.
        ordered = sorted(seen, key=lambda one: (one[0], not one[1]))
        ends, parts, left = [], [], 1.0
        for at, (amount, over) in enumerate(ordered):
            if over:
                part = left / (len(ordered) - at)
                ends.append(amount)
                parts.append(part)
                left -= part
        return cls(tuple(ends), tuple(accumulate(parts)))

    def quantile(self, frac: float, beyond: float = 0.0) -> float | None:
        """Where the share *frac* of those that are larger than *beyond* has ended.

        None where nothing was seen to end so late.
        """
        at = bisect_right(self.ends, beyond) if beyond > 0.0 else 0
        before = self.ended_frac[at - 1] if at else 0.0
        wanted = before + (1.0 - before) * frac
        found = bisect_right(self.ended_frac, wanted - 1e-12, lo=at)
        return self.ends[found] if found < len(self.ends) else None
