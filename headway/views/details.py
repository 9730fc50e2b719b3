"""What ledger, Prefect and this node's disk know of a run, put together."""

from pathlib import Path
from typing import Any

from headway.estimate.remaining.diagnostics import diagnose_points
from headway.ledger.records import RunRecord
from headway.model.run import RunState
from headway.prefect.client import FlowRun
from headway.profile.text import profile_view
from headway.run.profiling import kept
from headway.site import Site
from headway.views.queue_document import waiting_of
from headway.views.run_document import diagnostics_view, is_over, run_details, run_view
from headway.views.show import Past
from headway.views.site_snapshot import progress_of_runs, remaining_s_of


def details(site: Site, seen: FlowRun, record: RunRecord | None, ui_url: str) -> dict[str, Any]:
    """Everything about one run, as `headway show --json` prints it."""
    if record is None:
        return run_view(seen, None, ui_url)
    (progress,) = progress_of_runs(site, [record])
    view = run_view(seen, record, ui_url, progress)
    past, ledger = past_of(site, record), site.ledger
    known = run_details(
        record,
        steps=past.steps,
        lease=ledger.leases.of_run(record.run_id),
        latest=ledger.progress.latest(record.run_id),
        remaining_s=remaining_s_of(progress),
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
