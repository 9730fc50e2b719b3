"""The refit: a challenger learns from the traces and meets the champion on held-out runs.

What wins is then refitted on everything. The versions before it are kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar, cast

from threadpoolctl import threadpool_limits

from headway.clock import Clock
from headway.estimate import store
from headway.estimate.estimator import FEWEST, Estimators
from headway.estimate.evaluation.compare import (
    FEWEST_TO_JUDGE,
    Verdict,
    compare,
    pair_error,
    split,
    with_pairs_of,
)
from headway.estimate.evaluation.tournament import Brought, Tournament, tournament
from headway.estimate.features import measured_times
from headway.estimate.physics import Tables, shipped
from headway.estimate.scale_out import impossible
from headway.estimate.winners import Champions
from headway.model.trace import Trace

_Call = TypeVar("_Call", bound=Callable[..., object])


def on_one_core(call: _Call) -> _Call:
    """Threads that spin for a core which a training job uses slow both down."""
    return cast("_Call", threadpool_limits.wrap(limits=1)(call))  # it ships no types


@dataclass(frozen=True, slots=True)
class Refit:
    """What became of one refit."""

    traces: int
    """Traces that have a measured time."""
    verdict: Verdict
    version: int
    """The version in use afterwards; 0 is the prior."""
    tournament: Tournament | None = None
    """How the candidates did; None where there were too few runs."""
    impossible: tuple[str, ...] = ()
    """Imported rows that are faster than their GPUs can be, in words; they were not learnt."""


@on_one_core
def retrain(
    traces: Sequence[Trace],
    models_dir: Path,
    *,
    fitted_at: datetime,
    clock: Clock,
    tables: Tables | None = None,
    brought: Brought | None = None,
) -> Refit:
    """Refit on *traces*; the challenger takes the champion's place only if it is better.

    On one core: threads that spin for a core which a training job uses slow
    both down (measured: 300 traces in seven minutes instead of half a one).

    Args:
        traces: All there are.
        models_dir: Where the versions lie.
        fitted_at: Time of the refit, written into the version.
        clock: For how long the candidates take.
        tables: Facts of GPUs and networks; the shipped ones when None.
        brought: How estimators are asked that others have brought.
    """
    tables = tables or shipped()
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
        return Refit(len(usable), verdict, champion.version, impossible=named)

    if len(usable) <= FEWEST:
        return kept(f"{len(usable)} usable traces; more than {FEWEST} are needed to learn from")
    older, held_out = split(usable, seen=champion.seen)
    if champion.has_times and len(held_out) < FEWEST_TO_JUDGE:
        return kept(
            f"{len(held_out)} usable traces since version {champion.version}; "
            f"{FEWEST_TO_JUDGE} are needed to tell whether another would be better"
        )
    # On the older ones alone: who wins is then judged, with all the rest, on what it has not seen.
    before = champion.champions.names if champion.champions else {}
    met = tournament(older, tables, clock=clock, before=before, brought=brought)
    champions = None if met is None else Champions(met.unit, met.champions)

    def learnt(from_: Sequence[Trace], version: int) -> Estimators:
        return Estimators.fit(
            from_,
            fitted_at=fitted_at,
            version=version,
            tables=tables,
            champions=champions,
            learn=None if brought is None else brought.learn,
        )

    challenger = learnt(older, 1)
    verdict = compare(champion, challenger, held_out, older)
    if not verdict.promoted:
        return Refit(len(usable), verdict, champion.version, met, named)
    version = 1 + max(map(store.version_of, store.versions(models_dir)), default=0)
    found = learnt(usable, version)
    if pair_error(challenger, held_out) > pair_error(champion, held_out):
        found = with_pairs_of(champion, found)
    store.save(found, models_dir)
    return Refit(len(usable), verdict, version, met, named)
