"""One round of a node's janitor and of its pool's reconciler, in a process of neither."""

from collections.abc import Callable, Collection
from contextlib import suppress

from headway.errors import RunUnknown, SiteUnreachable
from headway.ledger.records import RunRecord
from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind
from headway.node.janitor import Janitor
from headway.node.mending import same
from headway.policy.agree import Change, end_seen
from headway.prefect.client import PrefectServer
from headway.scheduler.reconciler import Mending, PrefectRun, Reconciler
from headway.site import Site


def round_here(
    site: Site,
    server: PrefectServer,
    janitor: Janitor,
    reconciler: Reconciler,
    *,
    called: Collection[str] = (),
    starting: Callable[[list[RunRecord]], Collection[str]] = lambda _: (),
    whole: bool = True,
) -> None:
    """Mend what differs, and tell Prefect which runs have ended.

    Args:
        site: Of this node.
        server: Its Prefect server; without it what the ledger alone decides is done.
        janitor: Its janitor.
        reconciler: That of its pool.
        called: Runs to be looked at beside those always looked at.
        starting: Those of some runs whose flow process may be starting now.
        whole: See `Reconciler.unsettled`.
    """
    runs = janitor.unsettled(called)
    janitor.round(runs, frozenset(starting(runs)))
    asked = reconciler.unsettled(called, whole=whole)
    for mending in reconciler.round(asked, _said(server, [run.run_id for run in asked])):
        with suppress(SiteUnreachable, RunUnknown):
            _tell(site, server, mending)


def _said(server: PrefectServer, run_ids: list[str]) -> dict[str, PrefectRun]:
    """What Prefect says; a deleted run is missing in it."""
    try:
        found = server.these(run_ids)
    except SiteUnreachable:
        return dict.fromkeys(run_ids, PrefectRun(PrefectView.UNKNOWN))
    views = {key: PrefectView.of(run.state_type, run.state_name) for key, run in found.items()}
    return {key: PrefectRun(views[key], run.message, run.state_id) for key, run in found.items()}


def _tell(site: Site, server: PrefectServer, mending: Mending) -> None:
    """Tell Prefect of an end, unless ledger or Prefect say something else by now.

    Other states are left to the scheduler, whose client can write all of them.
    """
    run = site.ledger.runs.get(mending.run.run_id)
    if mending.change is not Change.SET_FINAL or not same(mending.run, run):
        return
    if run.exit is None or server.run(run.run_id).state_id != mending.prefect.state_id:
        return
    name = "TimedOut" if run.exit.kind is ExitKind.TIMED_OUT else ""
    state_type = end_seen(run.exit.kind).value.upper()
    server.end(run.run_id, state_type, run.exit.message, name=name)
