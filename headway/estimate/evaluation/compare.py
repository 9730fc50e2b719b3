"""Champion against challenger: promoted only when better on runs that neither has seen.

Errors are logarithms, bounded, and each person's runs count as a few at most: nobody's runs,
however many or odd, say alone who wins. Who was predicted well is not to be predicted badly.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from headway.estimate.estimator import Estimators, digest
from headway.estimate.evaluation.evaluate import HeldOut, Score, log_errors, score
from headway.estimate.features import Unit, from_trace, measured_times
from headway.estimate.learnable import whose_run
from headway.estimate.recall import RECENT, said_of
from headway.estimate.sharing import pairs_of
from headway.model.trace import Trace

FEWEST_TO_JUDGE = 10
"""With fewer held-out runs a difference is chance."""
BETTER = 0.98
"""A challenger's error is at most so much of the champion's."""
OF_ONE = 10
"""A person's held-out runs count as so many at most."""
_WELL = 0.25
"""Who was predicted within so much on the average is not to be predicted worse than that."""
_FEWEST_OF_ONE = 3
"""With fewer held-out runs of a person that is chance."""


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
    champion: Estimators | None,
    challenger: Estimators,
    held_out: Sequence[Trace],
    known: Sequence[Trace] = (),
) -> Verdict:
    """Whether *challenger* is to be used instead of *champion*.

    Args:
        champion: In use now; None, or without traces, when there is none.
        challenger: Fitted without *held_out*.
        held_out: Runs that neither was fitted on.
        known: Traces that the site has besides. Of what an estimator cannot predict it says what
            these tell, else the prior.
    """
    new = as_said(challenger, held_out, known)
    mine = score(new)
    if champion is None or not champion.has_times:
        reason = "there was none before it"
        return Verdict(challenger.has_times, reason, len(held_out), None, mine)
    old = as_said(champion, held_out, known)
    table = pd.DataFrame(
        {
            "whose": [whose_run(t) for t in held_out],
            "old": log_errors(old),
            "new": log_errors(new),
        }
    )
    weight = (OF_ONE / table.groupby("whose")["whose"].transform("size")).clip(upper=1.0)
    before, after = (float(np.average(table[name], weights=weight)) for name in ("old", "new"))
    figures = f"error {after:.1%} against {before:.1%} on {len(held_out)} runs"
    people = table.groupby("whose").agg({"old": "mean", "new": "mean", "whose": "size"})
    worse = people[
        (people["whose"] >= _FEWEST_OF_ONE)
        & (people["old"] <= _WELL)
        & (people["new"] > np.maximum(_WELL, 2 * people["old"]))
    ]
    if len(held_out) < FEWEST_TO_JUDGE:
        reason = f"too few held-out runs ({figures})"
    elif after > BETTER * before:
        reason = f"not better: {figures}"
    elif len(worse):
        whose, row = next(worse.sort_values("new", ascending=False).iterrows())
        reason = (
            f"better for some ({figures}), but the error of runs of {str(whose) or 'imports'} "
            f"would go from {row['old']:.1%} to {row['new']:.1%}"
        )
    else:
        return Verdict(True, f"better: {figures}", len(held_out), score(old), mine)
    return Verdict(False, reason, len(held_out), score(old), mine)


def pair_error(estimators: Estimators, held_out: Sequence[Trace]) -> float:
    """Mean error of what *estimators* say of the pairs of *held_out*, as logarithms.

    What they know nothing of counts as no slow-down, by which a plan goes there; 0 without pairs.
    """
    errors = []
    for trace in held_out:
        own = estimators.of(trace.team)
        pairs = list(pairs_of([trace], {"", trace.team}, estimators.tables))
        said = [None] * len(pairs) if own.pairs is None else own.pairs.says([c for c, _ in pairs])
        for each, (_, times) in zip(said, pairs, strict=True):
            errors.append(abs(float(np.log((each or 1.0) / times))))
    return float(np.mean(errors)) if errors else 0.0


def with_pairs_of(champion: Estimators, found: Estimators) -> Estimators:
    """*found* with what *champion* knows of pairs, each team with its own."""
    teams = {
        name: replace(each, pairs=champion.of(name).pairs) for name, each in found.teams.items()
    }
    return replace(found, pairs=champion.pairs, teams=teams)


def measured(trace: Trace) -> tuple[Unit, float]:
    """What of *trace* a clock has told, before what follows from counts that somebody claims."""
    times = measured_times(trace)
    return next((unit, times[unit]) for unit in reversed(Unit) if unit in times)


def as_said(
    estimators: Estimators, held_out: Sequence[Trace], known: Sequence[Trace] = ()
) -> HeldOut:
    """What a site with *estimators* and *known* traces says of *held_out*, which have times."""
    recent: dict[tuple[str, str], list[Trace]] = {}
    for trace in sorted(known, key=lambda t: str(t.started_at or "")):
        recent.setdefault((trace.recipe or trace.network, trace.team), []).append(trace)
    found = []
    told = [measured(trace) for trace in held_out]
    for unit in Unit:
        rows = [(at, seconds) for at, (each, seconds) in enumerate(told) if each is unit]
        asked = [from_trace(held_out[at]) for at, _ in rows]
        predicted = estimators.predict(asked, unit)
        for (at, seconds), c, each in zip(rows, asked, predicted, strict=True):
            says = each
            if each.runtime_s is None:
                like = [t for team in {"", c.team} for t in recent.get((c.recipe, team), ())]
                like = like[-RECENT:] if unit is Unit.RUN else []
                says = said_of(c, each, like)
            found.append((at, seconds, says.runtime_low_s, says.runtime_s, says.runtime_high_s))
    table = np.array(sorted(found), dtype=np.float64)
    return HeldOut(table[:, 1], table[:, 2:])
