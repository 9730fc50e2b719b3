"""Arrays as plain data (`views.answers`): one line each, and their members."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any, TypedDict

from headway.estimate.starts import FAR_S
from headway.ledger.arrays import MemberCounts, kept_array
from headway.ledger.records import ArrayRecord, RunRecord
from headway.model.run import Exit, RunState
from headway.policy.arrays import last_end_s
from headway.site import Site
from headway.views.answers import At
from headway.views.fields import fields, iso_time, shaped
from headway.views.run_document import NO_PROGRESS, exit_view, ledger_state
from headway.views.site_snapshot import progress_of_runs

_UNDER_WAY = (RunState.WAITING, RunState.CLAIMED, RunState.RUNNING)
_LOOKED_AT = 50
"""So many of the newest members that ended well say how long the next ones run."""


class ArrayLine(TypedDict):
    """An array."""

    array_id: str
    name: str
    owner: str
    team: str
    size: int
    at_most: int | None
    """Null: as many at once as there is room for."""
    state: str
    waiting: int
    """With those that are no runs yet."""
    running: int
    ended_well: int
    failed: int
    cancelled: int
    submitted_at: At
    cancelled_at: At | None
    expected_end_at: At | None


class Member(TypedDict):
    """A member of an array that has become a run."""

    index: int
    run_id: str
    name: str
    node: str | None
    attempt: int
    state: str
    exit: Exit | None
    runtime_s: float | None
    parameters: dict[str, Any]
    iteration: int | None
    epoch: float | None
    metrics: dict[str, float]


def array_views(site: Site, arrays: Sequence[ArrayRecord]) -> list[dict[str, Any]]:
    """Each of *arrays* as one line: how many of its members wait, run and have ended, and how."""
    counts = site.ledger.arrays.counts([each.array_id for each in arrays])
    return [_view(site, each, counts[each.array_id]) for each in arrays]


def _view(site: Site, array: ArrayRecord, counts: MemberCounts) -> dict[str, Any]:
    waiting = counts.waiting_of(array)
    over = not (waiting or counts.running)
    end = None if over else _expected_end(site, array, waiting)
    return shaped(
        ArrayLine,
        array,
        state=_state(array, counts, over=over),
        waiting=waiting,
        **fields(counts, "running", "ended_well", "failed"),
        # Those that a cancel kept from becoming runs count as cancelled, too.
        cancelled=array.size - waiting - counts.running - counts.ended_well - counts.failed,
        expected_end_at=iso_time(end),
    )


def _state(array: ArrayRecord, counts: MemberCounts, *, over: bool) -> str:
    if over and array.cancelled_at is not None:
        return "Cancelled"
    if over:
        return "Completed" if counts.ended_well == array.size else "Failed"
    if array.cancelled_at is not None:
        return "Cancelling"
    return "Running" if counts.running else "AwaitingHeadroom"


def _expected_end(site: Site, array: ArrayRecord, waiting: int) -> datetime | None:
    """When the last member is expected to end, in the places that the array has now.

    None where nothing is known of how long a member runs.
    """
    now = site.ledger.now()
    under_way = site.ledger.arrays.members(array.array_id, _UNDER_WAY)
    running = [run for run in under_way if run.state is not RunState.WAITING]
    far = progress_of_runs(site, running)
    lasts_s = _lasts_s(site, array, under_way)
    remaining = [each.remaining_s if each.remaining_s is not None else lasts_s for each in far]
    free_in_s = [each for each in remaining if each is not None]
    if not remaining:
        starts = [run.expected_start_at for run in under_way if run.expected_start_at]
        free_in_s = [max((min(starts) - now).total_seconds(), 0.0) if starts else 0.0]
    if len(free_in_s) < len(remaining) or (waiting and lasts_s is None):
        return None
    # A log may promise any number of iterations, and an array has many members: dates have an end.
    return now + timedelta(seconds=min(last_end_s(free_in_s, waiting, lasts_s or 0.0), FAR_S))


def _lasts_s(site: Site, array: ArrayRecord, under_way: Sequence[RunRecord]) -> float | None:
    """How long a member runs: as those did that ended well, else as was learnt of runs like it."""
    lasted_s = site.ledger.arrays.lasted_s(array.array_id, _LOOKED_AT)
    if lasted_s:
        return median(lasted_s)
    said = (run.prediction.learnt_runtime_s for run in under_way if run.prediction is not None)
    return next((each for each in said if each is not None), None)


def members_document(site: Site, array: ArrayRecord, *, limit: int | None = None) -> dict[str, Any]:
    """The array's line, and a row for each member that has become a run, in order.

    Of the first *limit* of them, where one is given.

    Each row has its parameters, how it stands, and what its log said last.
    """
    (view,) = array_views(site, [array])
    runs = site.ledger.arrays.members(array.array_id, limit=limit)
    points = site.ledger.progress.latest_of([run.run_id for run in runs])
    known = kept_array(array)
    rows = [
        shaped(
            Member,
            run,
            index=run.array_index,
            state=ledger_state(run),
            exit=exit_view(run.exit),
            runtime_s=run.measurement.runtime_s if run.measurement else None,
            parameters=known.parameters(run.array_index or 1),
            **fields(points.get(run.run_id, NO_PROGRESS), "iteration", "epoch", "metrics"),
        )
        for run in runs
    ]
    return {**view, "members": rows}


MOST_MEMBERS = 48
"""So many pictures are looked at beside each other; `headway results` has all members."""
_MOST_POINTS = 60
_USUAL = "loss"


def curves_document(site: Site, array: ArrayRecord, metric: str) -> dict[str, Any]:
    """The curves of *metric* of the first members that have it, and which other metrics there are.

    Args:
        site: Where.
        array: Whose members.
        metric: Its name; empty for the loss, else the first that there is.
    """
    runs, known = site.ledger.arrays.members(array.array_id), kept_array(array)
    latest = site.ledger.progress.latest_of([run.run_id for run in runs])
    names = sorted({name for point in latest.values() for name in point.metrics})
    shown = metric or (_USUAL if _USUAL in names else next(iter(names), ""))
    have = [run for run in runs if run.run_id in latest and shown in latest[run.run_id].metrics]
    members = []
    for run in have[:MOST_MEMBERS]:
        points = site.ledger.progress.thinned(run.run_id, run.attempt, _MOST_POINTS)
        drawn = [[each.t_s, each.metrics[shown]] for each in points if shown in each.metrics]
        members.append(
            {
                "index": run.array_index,
                "run_id": run.run_id,
                "parameters": known.parameters(run.array_index or 1),
                "points": drawn,
            }
        )
    left_out = len(have) - len(members)
    return {"metric": shown, "metrics": names, "members": members, "left_out": left_out}
