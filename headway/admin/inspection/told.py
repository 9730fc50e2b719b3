"""Whether Prefect says of every run what the ledger says."""

from collections.abc import Iterator
from datetime import datetime

from headway.model.inspection import Finding, Kind, SeenRun, SeenState, Snapshot, janitor_of, named
from headway.model.prefect_view import PrefectView
from headway.model.run import RunState
from headway.policy.reconcile import end_seen

_FITS = {
    RunState.WAITING: {PrefectView.SCHEDULED},
    # A claim comes before its start in Prefect, and has its own deadline.
    RunState.CLAIMED: {PrefectView.ACTIVE, PrefectView.PENDING, PrefectView.SCHEDULED},
    RunState.RUNNING: {PrefectView.ACTIVE},
}
_PAUSED = {PrefectView.PAUSED, PrefectView.SUSPENDED}


def prefect_disagrees(seen: Snapshot) -> Iterator[Finding]:
    """Ends that Prefect has not acknowledged, and states that are not the ledger's."""
    for run in seen.ledger.runs.values():
        said = seen.prefect.get(run.run_id)
        if said is not None and said.view is PrefectView.UNKNOWN:
            said = None
        ended = run.state is RunState.ENDED
        finding = (_after_the_end if ended else _open)(seen, run, said)
        if finding is not None:
            yield finding


def _after_the_end(seen: Snapshot, run: SeenRun, said: SeenState | None) -> Finding | None:
    wanted = end_seen(run.exit_kind) if run.exit_kind is not None else PrefectView.UNKNOWN
    if said is None or said.view in {PrefectView.MISSING, wanted}:
        if run.told_at is not None:
            return None
        what = f"{named(run.run_id, run)} has ended, and it is not noted that Prefect knows"
        return _finding(seen, Kind.UNTOLD, run, run.since, what)
    if run.told_at is not None and said.view is PrefectView.SCHEDULED and not run.is_rank:
        what = f"{named(run.run_id, run)} has ended, and its user wants it again"
    else:
        what = (
            f"{named(run.run_id, run)} has ended: Prefect says {said.view.value}, "
            f"the ledger calls for {wanted.value}"
        )
    return _finding(seen, Kind.PREFECT, run, _later(run.since, said.since), what)


def _open(seen: Snapshot, run: SeenRun, said: SeenState | None) -> Finding | None:
    if said is None or said.view in _FITS.get(run.state, set()):
        return None
    if run.suspended and said.view in _PAUSED:
        return None
    what = f"{named(run.run_id, run)} is {run.state.value}: Prefect says {said.view.value}"
    return _finding(seen, Kind.PREFECT, run, _later(run.since, said.since), what)


def _finding(
    seen: Snapshot, kind: Kind, run: SeenRun, since: datetime | None, what: str
) -> Finding:
    return seen.finding(
        kind, run.run_id, what, janitor_of(run.node), since=since, grace_s=run.grace_s
    )


def _later(first: datetime | None, second: datetime | None) -> datetime | None:
    """The later of two moments, as far as they are known."""
    return max((each for each in (first, second) if each is not None), default=None)
