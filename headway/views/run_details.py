"""Everything about one run, put together from Prefect, the ledger and this node's disk."""

from typing import Any

from headway.ledger.records import RunRecord
from headway.model.run import RunState
from headway.prefect.client import ListedRun
from headway.profile.text import profile_view
from headway.site import Site
from headway.views.queue_document import waiting_of
from headway.views.run_document import diagnostics_view, is_over, run_details, run_view
from headway.views.run_history import history_of
from headway.views.site_snapshot import progress_of_runs, remaining_s_of


def details(site: Site, seen: ListedRun, record: RunRecord | None) -> dict[str, Any]:
    """Everything about one run, as `headway show --json` prints it."""
    if record is None:
        return run_view(seen, None)
    (progress,) = progress_of_runs(site, [record])
    history = history_of(site, record)
    known = run_view(seen, record, progress)
    known |= run_details(history, remaining_s_of(progress))
    if record.state is RunState.WAITING and not is_over(seen):
        known["waiting"] = waiting_of(site, record)
    known["diagnostics"] = diagnostics_view(history.diagnostics)
    if history.profile is not None:
        known["profile"] = profile_view(history.profile)
    return known
