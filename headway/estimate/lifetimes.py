"""How long runs go on, drawn at random: for playing a queue forward many times.

Of a run of which something was learnt its own prediction or log speaks; else the nearest group of
the site's runs, those that still run among them. Runs of one kind that were submitted together last
alike (in the Philly traces the logs of what such neighbours last correlate by 0.9 and more): they
are drawn together, and once one of them has ended the others are taken to last as long, where their
own logs do not say how long they take. Cheap to import.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist

from headway.estimate.spread import Z80, next_of
from headway.estimate.survival import Survival
from headway.estimate.usual import Kind, Usual
from headway.model.run import Span
from headway.units import HOUR_S, MINUTE_S

_ENOUGH = 10
"""So many of a group must have ended for their distribution to be known."""
_ALIKE_SD = 0.3
"""Of the logs of what runs of one batch last, before any has ended."""
_NORMAL = NormalDist()
_MOST = 1e6
"""Nobody is taken to last longer than so many times what it has lasted."""


@dataclass(frozen=True, slots=True)
class Life:
    """How long one run has lasted so far."""

    kind: Kind
    submitted_s: float
    lasted_s: float = 0.0
    """0 for one that waits."""
    over: bool = False
    learnt: Span | None = None
    """What its own prediction says; None where that is a guess."""
    tells: bool = False
    """Its log says `learnt`, of which others of its batch know nothing better."""


@dataclass(slots=True)
class _Batch:
    """Runs of one kind, none submitted more than a minute after the one before it."""

    key: str
    longest_s: float = 0.0
    """So long has one of them gone on by now."""
    logs: list[float] = field(default_factory=list)
    """Of those that have ended."""


class Lifetimes:
    """What the site's runs last."""

    def __init__(self, lives: Iterable[Life], usual: Usual) -> None:
        """Learn from runs that have ended, that go on, and that wait; *usual* speaks for few."""
        self._usual = usual
        seen: dict[tuple[object, ...], list[tuple[float, bool]]] = {}
        self._batches: dict[tuple[Kind, float], _Batch] = {}
        last: dict[Kind, tuple[float, _Batch]] = {}
        for one in sorted(lives, key=lambda life: life.submitted_s):
            for key in usual.keys(one.kind) if one.lasted_s > 0.0 else ():
                seen.setdefault(key, []).append((one.lasted_s, one.over))
            before_s, batch = last.get(one.kind) or (-math.inf, _new_batch(one))
            if one.submitted_s - before_s > MINUTE_S:
                batch = _new_batch(one)
            last[one.kind] = one.submitted_s, batch
            self._batches[one.kind, one.submitted_s] = batch
            if one.over and one.lasted_s > 0.0:
                batch.logs.append(math.log(one.lasted_s))
            batch.longest_s = max(batch.longest_s, 0.0 if one.over else one.lasted_s)
        self._seen = seen
        self._ended = {key: sum(over for _, over in found) for key, found in seen.items()}
        self._groups: dict[tuple[object, ...], Survival] = {}

    def round(self, seed: int) -> Callable[[Life], float]:
        """One draw for all: how long a run goes on from now, or from its start if it waits.

        The same seed draws the same for a run, whoever else is there.
        """
        chances: dict[str, Random] = {}

        def left_s(one: Life) -> float:
            batch = self._batches.get((one.kind, one.submitted_s)) or _new_batch(one)
            # Those of a batch that has not shown its length draw the same number.
            if batch.key not in chances or not batch.logs:
                chances[batch.key] = Random(f"{seed} {batch.key}")  # noqa: S311 - no secret
            whole_s = self._whole_s(one, batch, chances[batch.key].random())
            most_s = max(one.kind.limit_s, 1.1 * one.lasted_s)
            return max(min(whole_s, most_s) - one.lasted_s, 1.0)

        return left_s

    def _whole_s(self, one: Life, batch: _Batch, frac: float) -> float:
        learnt, beyond_s = one.learnt, one.lasted_s
        if not one.tells:
            beyond_s = max(batch.longest_s, one.lasted_s)
        if batch.logs and not one.tells:
            centre, sd = next_of(batch.logs, _ALIKE_SD)
            learnt = Span(*(math.exp(centre + each * Z80 * sd) for each in (-1.0, 0.0, 1.0)))
            beyond_s = one.lasted_s
        group = self._group(one.kind) if learnt is None else None
        if learnt is None and group is None and (like := self._usual.of(one.kind)) is not None:
            learnt = like[0]
        found = _log_normal(learnt, frac, beyond_s) if learnt is not None else None
        if found is None and group is not None:
            found = group.quantile(frac, beyond_s)
        if found is None:
            # Beyond all that was seen: who has lasted long lasts as long again, in the median.
            found = max(beyond_s, HOUR_S) * min(1.0 / (1.0 - frac), _MOST)
        return found

    def _group(self, kind: Kind) -> Survival | None:
        """The nearest group of which any has ended, where enough have; few speak by `Usual`."""
        key = next((each for each in self._usual.keys(kind) if self._ended.get(each, 0) > 0), None)
        if key is None or self._ended[key] < _ENOUGH:
            return None
        if key not in self._groups:
            self._groups[key] = Survival.of(self._seen[key])
        return self._groups[key]


def _new_batch(first: Life) -> _Batch:
    return _Batch(f"{first.kind} {first.submitted_s}")


def _log_normal(span: Span, frac: float, beyond_s: float) -> float | None:
    """The share *frac* of what is longer than *beyond_s*; None where *span* has next to none."""
    if not 0.0 < span.low_s <= span.median_s <= span.high_s < math.inf:
        return None
    below = math.log(span.median_s / span.low_s) / Z80
    above = math.log(span.high_s / span.median_s) / Z80
    offset = math.log(max(beyond_s, 1e-9) / span.median_s)
    sd = above if offset > 0.0 else below
    before = _NORMAL.cdf(offset / sd) if sd > 0.0 else float(offset > 0.0)
    if before > 1.0 - 1e-3:
        return None
    z = _NORMAL.inv_cdf(min(max(before + (1.0 - before) * frac, 1e-9), 1.0 - 1e-9))
    return span.median_s * math.exp(z * (above if z > 0.0 else below))
