"""What ledger, Prefect and this node's disk know of a run, put together."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from headway.estimate.remaining.diagnostics import diagnose_points
from headway.estimate.usual import LOOKED_AT, Usual
from headway.ledger.records import RunRecord
from headway.model.attempt import Standing
from headway.model.run import RunState
from headway.prefect.client import FlowRun
from headway.profile.text import profile_view
from headway.run.profiling import kept
from headway.scheduler.snapshot import left_of, usual_of
from headway.site import Site
from headway.views.metrics import RunStanding
from headway.views.queue_document import waiting_of
from headway.views.run_document import diagnostics_view, is_over, run_details, run_view
from headway.views.show import Past


def details(site: Site, seen: FlowRun, record: RunRecord | None, ui_url: str) -> dict[str, Any]:
    """Everything about one run, as `headway show --json` prints it."""
    if record is None:
        return run_view(seen, None, ui_url)
    (standing,) = standings(site, [record])
    view = run_view(seen, record, ui_url, standing)
    past, ledger = past_of(site, record), site.ledger
    known = run_details(
        record,
        steps=past.steps,
        lease=ledger.leases.of_run(record.run_id),
        latest=ledger.progress.latest(record.run_id),
        remaining_s=remaining_s_of(standing),
        outputs=past.outputs,
        ranks=past.ranks,
        warnings=past.warnings,
        attempts=past.attempts,
    )
    if record.state is RunState.WAITING and not is_over(seen):
        known["waiting"] = waiting_of(site, record)
    return (
        view
        | known
        | {"diagnostics": diagnostics_view(past.diagnostics)}
        | ({"profile": profile_view(past.profile)} if past.profile is not None else {})
    )


def past_of(site: Site, record: RunRecord) -> Past:
    """What the ledger and this node's disk have of one run, for its story."""
    ledger, run_id = site.ledger, record.run_id
    folder = site.settings.runs_dir / run_id
    points = ledger.progress.series(run_id, record.attempt)
    return Past(
        record,
        attempts=ledger.attempts.of_run(run_id),
        leases=ledger.leases.every_of_run(run_id),
        warnings=ledger.warnings.of_run(run_id),
        steps=ledger.runs.steps(run_id),
        ranks=ledger.runs.ranks(run_id, record.attempt),
        here=site.settings.node,
        folder=folder,
        outputs=_outputs(folder) if record.node in (None, site.settings.node) else None,
        diagnostics=diagnose_points(points),
        profile=kept(site, run_id),
    )


def _outputs(folder: Path) -> list[str]:
    return sorted(str(path) for path in (folder / "outputs").rglob("*") if path.is_file())


def remaining_s_of(standing: RunStanding) -> float | None:
    """How long the run still takes; 0.0 once it has ended, None while that is not known."""
    return 0.0 if standing.record.state is RunState.ENDED else standing.remaining_s


def standings(site: Site, records: Sequence[RunRecord]) -> list[RunStanding]:
    """How far each of *records* is.

    Whoever follows a run says it to the ledger every few seconds; nobody walks
    through its points again. Before the first word what was learnt of it counts.
    """
    ledger = site.ledger
    following = [r for r in records if r.state is RunState.RUNNING]
    if not following:
        return [RunStanding(record, None, None, None) for record in records]
    running = ledger.runs.all(states=(RunState.RUNNING,))
    said = ledger.standings.of([r.run_id for r in (*following, *running)])
    usual = usual_of(ledger.runs.lasted(LOOKED_AT), running, said)
    now = ledger.now()
    return [_standing(record, said.get(record.run_id), usual, now) for record in records]


def _standing(record: RunRecord, last: Standing | None, usual: Usual, now: datetime) -> RunStanding:
    if record.state is not RunState.RUNNING or record.started_at is None:
        return RunStanding(record, None, None, None)
    elapsed_s = max((now - record.started_at).total_seconds(), 0.0)
    done = last.done_frac if last is not None and last.attempt == record.attempt else None
    left = left_of(record, last, usual, now)  # what the line goes by, too
    return RunStanding(record, elapsed_s, done, None if left is None else left.median_s)
