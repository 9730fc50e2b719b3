"""The refit: a challenger learns from the traces and meets the champion on held-out runs.

What wins is then refitted on everything. The versions before it are kept.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from threadpoolctl import threadpool_limits

from headway.estimate import store
from headway.estimate.estimator import FEWEST, Estimators
from headway.estimate.evaluation.compare import FEWEST_TO_JUDGE, Verdict, compare, split
from headway.estimate.features import measured_times
from headway.estimate.physics import Tables
from headway.estimate.scale_out import impossible
from headway.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Refit:
    """What became of one refit."""

    traces: int
    """Traces that have a measured time."""
    verdict: Verdict
    version: int
    """The version in use afterwards; 0 is the prior."""
    impossible: tuple[str, ...] = ()
    """Imported rows that are faster than their GPUs can be, in words; they were not learnt."""


def retrain(
    traces: Sequence[Trace],
    models_dir: Path,
    *,
    fitted_at: datetime,
    tables: Tables | None = None,
) -> Refit:
    """Refit on *traces*; the challenger takes the champion's place only if it is better.

    On one core: threads that spin for a core which a training job uses slow
    both down (measured: 300 traces in seven minutes instead of half a one).

    Args:
        traces: All there are.
        models_dir: Where the versions lie.
        fitted_at: Time of the refit, written into the version.
        tables: Facts of GPUs and networks; the shipped ones when None.
    """
    with threadpool_limits(1):
        return _retrain(traces, models_dir, fitted_at, tables)


def _retrain(
    traces: Sequence[Trace], models_dir: Path, fitted_at: datetime, tables: Tables | None
) -> Refit:
    champion = store.load(models_dir, tables)
    # A site's own runs may wait for a busy machine: one that was slow makes no other one wrong.
    imported = [trace for trace in traces if trace.source != "site"]
    wrong = {id(imported[at]): said for at, said in impossible(imported).items()}
    named = tuple(
        f"{t.network} on {t.gpus} × {t.gpu_type} of {t.source}, {wrong[id(t)]}"
        for t in imported
        if id(t) in wrong
    )
    usable = [trace for trace in traces if measured_times(trace) and id(trace) not in wrong]

    def kept(reason: str) -> Refit:
        verdict = Verdict(promoted=False, reason=reason, runs=0, champion=None, challenger=None)
        return Refit(len(usable), verdict, champion.version, named)

    if len(usable) <= FEWEST:
        return kept(f"{len(usable)} usable traces; more than {FEWEST} are needed to learn from")
    older, held_out = split(usable, seen=champion.seen)
    if champion.has_times and len(held_out) < FEWEST_TO_JUDGE:
        return kept(
            f"{len(held_out)} usable traces since version {champion.version}; "
            f"{FEWEST_TO_JUDGE} are needed to tell whether another would be better"
        )
    challenger = Estimators.fit(older, fitted_at=fitted_at, tables=tables)
    verdict = compare(champion, challenger, held_out, older)
    if not verdict.promoted:
        return Refit(len(usable), verdict, champion.version, named)
    version = 1 + max(map(store.version_of, store.versions(models_dir)), default=0)
    winner = Estimators.fit(usable, fitted_at=fitted_at, version=version, tables=tables)
    figures = asdict(verdict.challenger) if verdict.challenger else {}
    store.save(replace(winner, figures=figures), models_dir)
    return Refit(len(usable), verdict, version, named)
