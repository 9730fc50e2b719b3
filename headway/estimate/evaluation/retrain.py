"""The refit: a challenger learns from the traces and meets the champion on held-out runs.

What wins is then refitted on everything. The versions before it are kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path

from threadpoolctl import threadpool_limits

from headway.estimate import store
from headway.estimate.estimator import FEWEST, Estimators
from headway.estimate.evaluation.compare import FEWEST as FEWEST_NEW
from headway.estimate.evaluation.compare import Verdict, compare, forecasts, split
from headway.estimate.evaluation.evaluate import Held
from headway.estimate.features import measured_times
from headway.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Refit:
    """What became of one refit."""

    traces: int
    """Traces that have a measured time."""
    verdict: Verdict
    version: int
    """The version in use afterwards; 0 is the prior."""
    held: Mapping[str, Held] = field(default_factory=dict)
    """Champion's and challenger's forecasts of the held-out runs, beside what was measured."""


def retrain(traces: Sequence[Trace], models_dir: Path, *, fitted_at: datetime) -> Refit:
    """Refit on *traces*; the challenger takes the champion's place only if it is better.

    On one core: threads that spin for a core which a training job uses slow
    both down (measured: 300 traces in seven minutes instead of half a one).

    Args:
        traces: All there are.
        models_dir: Where the versions lie.
        fitted_at: Time of the refit, written into the version.
    """
    with threadpool_limits(1):
        return _retrain(traces, models_dir, fitted_at)


def _retrain(traces: Sequence[Trace], models_dir: Path, fitted_at: datetime) -> Refit:
    champion = store.load(models_dir)
    usable = [trace for trace in traces if measured_times(trace)]
    if len(usable) <= FEWEST:
        reason = f"{len(usable)} usable traces; more than {FEWEST} are needed to learn from"
        verdict = Verdict(promoted=False, reason=reason, runs=0, champion=None, challenger=None)
        return Refit(len(usable), verdict, champion.version)
    older, held_out = split(usable, seen=champion.seen)
    if champion.times and len(held_out) < FEWEST_NEW:
        reason = (
            f"{len(held_out)} usable traces since version {champion.version}; "
            f"{FEWEST_NEW} are needed to tell whether another would be better"
        )
        verdict = Verdict(promoted=False, reason=reason, runs=0, champion=None, challenger=None)
        return Refit(len(usable), verdict, champion.version)
    challenger = Estimators.fit(older, fitted_at=fitted_at)
    verdict = compare(champion, challenger, held_out)
    said = {
        "champion": forecasts(champion, held_out),
        "challenger": forecasts(challenger, held_out),
    }
    held = {name: each for name, each in said.items() if each is not None}
    if not verdict.promoted:
        return Refit(len(usable), verdict, champion.version, held)
    kept = [store.version_of(path) for path in store.versions(models_dir)]
    version = 1 + max(kept, default=0)
    winner = Estimators.fit(usable, fitted_at=fitted_at, version=version)
    store.save(replace(winner, figures=_figures(verdict)), models_dir)
    return Refit(len(usable), verdict, version, held)


def _figures(verdict: Verdict) -> Mapping[str, float]:
    return {} if verdict.challenger is None else asdict(verdict.challenger)
