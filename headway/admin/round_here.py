"""One round of a node's janitor in a process that is not its worker."""

from collections.abc import Collection
from contextlib import suppress

from headway.errors import RunUnknown, SiteUnreachable
from headway.ledger.records import RunRecord
from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind
from headway.node.janitor import Janitor
from headway.node.mending import Mending, PrefectRun, same
from headway.policy.reconcile import Action, end_seen
from headway.prefect.client import PrefectServer
from headway.site import Site


def round_here(
    site: Site,
    server: PrefectServer,
    janitor: Janitor,
    runs: list[RunRecord],
    starting: Collection[str],
) -> None:
    """Mend what differs of *runs*, and tell Prefect which of them have ended.

    Args:
        site: Of this node.
        server: Its Prefect server; without it what the ledger alone decides is done.
        janitor: Its janitor.
        runs: What it is about, from `Janitor.unsettled`.
        starting: Those of them whose flow process may be starting now.
    """
    said = _said(server, [run.run_id for run in runs])
    for mending in janitor.round(runs, said, frozenset(starting)):
        with suppress(SiteUnreachable, RunUnknown):
            _tell(site, server, mending)


def _said(server: PrefectServer, run_ids: list[str]) -> dict[str, PrefectRun]:
    """What the janitor has to know of Prefect; a deleted run is missing in it."""
    try:
        found = server.these(run_ids)
    except SiteUnreachable:
        return dict.fromkeys(run_ids, PrefectRun(PrefectView.UNKNOWN))
    return {
        run_id: PrefectRun(PrefectView.of(run.state_type), run.message, run.state_id)
        for run_id, run in found.items()
    }


def _tell(site: Site, server: PrefectServer, mending: Mending) -> None:
    """Tell Prefect of an end, unless ledger or Prefect say something else by now.

    Other states are left to the worker, whose client can write all of them.
    """
    run = site.ledger.runs.get(mending.run.run_id)
    if mending.action is not Action.SET_FINAL or not same(mending.run, run):
        return
    if server.run(run.run_id).state_id == mending.prefect.state_id:
        tell_end(server, run)


def tell_end(server: PrefectServer, run: RunRecord) -> None:
    """Write the state that the ledger's end of *run* calls for; nothing for one that goes on."""
    if run.exit is None:
        return
    name = "TimedOut" if run.exit.kind is ExitKind.TIMED_OUT else ""
    state_type = end_seen(run.exit.kind).value.upper()
    server.end(run.run_id, state_type, run.exit.message, name=name)
