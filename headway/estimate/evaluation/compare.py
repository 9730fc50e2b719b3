"""Champion against challenger: promoted only when better on runs that neither has seen."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from headway.estimate.duration.time_model import Forecast
from headway.estimate.estimator import Estimators, digest
from headway.estimate.evaluation.evaluate import HeldOut, Rows, Score, readable, score
from headway.model.trace import Trace

FEWEST_TO_JUDGE = 10
"""With fewer held-out runs a difference is chance."""
BETTER = 0.98
"""A challenger's mean error is at most so much of the champion's."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the two did on the same runs, and what follows."""

    promoted: bool
    reason: str
    """One sentence with the figures."""
    runs: int
    champion: Score | None
    challenger: Score | None


def split(
    traces: Sequence[Trace],
    share: float = 0.2,
    seed: int = 0,
    *,
    seen: Collection[int] = frozenset(),
) -> tuple[list[Trace], list[Trace]]:
    """*traces* to learn from, and those held out: half of them the newest, half at random.

    The newest tell whether a model keeps up with what the site runs now.

    Args:
        traces: All there are.
        share: Of them to hold out.
        seed: Of the random half.
        seen: Digests of those that the champion was fitted on; none of them is
            held out, and half of the others is left to learn from where that
            leaves enough to judge by.
    """
    fresh = [i for i, trace in enumerate(traces) if digest(trace) not in seen]
    count = round(len(traces) * share)
    if seen:
        count = max(min(count, len(fresh) // 2), min(FEWEST_TO_JUDGE, len(fresh)))
    count = min(max(1, count), len(fresh))
    by_age = sorted(
        fresh, key=lambda i: (traces[i].started_at is not None, str(traces[i].started_at))
    )
    newest = by_age[len(by_age) - count // 2 :]
    others = by_age[: len(by_age) - count // 2]
    drawn = np.random.default_rng(seed).choice(others, count - count // 2, replace=False)
    held = {*newest, *(int(i) for i in drawn)}
    return [t for i, t in enumerate(traces) if i not in held], [traces[i] for i in sorted(held)]


def compare(
    champion: Estimators | None, challenger: Estimators, held_out: Sequence[Trace]
) -> Verdict:
    """Whether *challenger* is to be used instead of *champion*.

    Args:
        champion: In use now; None, or without traces, when there is none.
        challenger: Fitted without *held_out*.
        held_out: Runs that neither was fitted on.
    """
    if champion is None or not champion.has_times:
        mine = forecast_score(challenger, held_out)
        return Verdict(challenger.has_times, "there was none before it", len(held_out), None, mine)
    both = [t for t in held_out if champion.of(t.team).times and challenger.of(t.team).times]
    old, new = forecast_score(champion, both), forecast_score(challenger, both)
    if old is None or new is None:
        return Verdict(False, "no held-out run can be predicted by both", len(held_out), old, new)
    figures = (
        f"mean error {readable(new.mean_relative_error)} against "
        f"{readable(old.mean_relative_error)}, 95th percentile "
        f"{readable(new.p95_relative_error)} against {readable(old.p95_relative_error)}, "
        f"on {len(held_out)} runs"
    )
    if len(held_out) < FEWEST_TO_JUDGE:
        return Verdict(False, f"too few held-out runs ({figures})", len(held_out), old, new)
    better = new.mean_relative_error <= BETTER * old.mean_relative_error
    no_worse = new.p95_relative_error <= 1.05 * old.p95_relative_error
    reason = ("better: " if better and no_worse else "not better: ") + figures
    return Verdict(better and no_worse, reason, len(held_out), old, new)


def forecast_score(estimators: Estimators, held_out: Sequence[Trace]) -> Score | None:
    """The figures of *estimators* on *held_out*; None when it has no model for their unit."""
    if not held_out:
        return None
    rows = Rows.of(held_out)
    each = np.full((3, len(rows.seconds)), np.nan)
    for team in {c.team for c in rows.configurations}:
        at = [i for i, c in enumerate(rows.configurations) if c.team == team]
        if (model := estimators.of(team).times.get(rows.unit)) is not None:
            asked = [estimators.tables.complete(rows.configurations[i]) for i in at]
            said = model.forecast(asked)
            each[:, at] = said.median_s, said.low_s, said.high_s
    told = ~np.isnan(each[0])
    if not told.any():
        return None
    return score(HeldOut(rows.seconds[told], Forecast(*each[:, told]), 0.0, 0.0))
