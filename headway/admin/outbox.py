"""Tells Prefect over HTTP how a run ended, where no worker is asked to."""

from headway.ledger.records import RunRecord
from headway.model.run import ExitKind
from headway.policy.reconcile import end_seen
from headway.prefect.client import PrefectServer


def tell_end(server: PrefectServer, run: RunRecord) -> None:
    """Write the state that the ledger's end of *run* calls for; nothing for one that goes on."""
    if run.exit is None:
        return
    name = "TimedOut" if run.exit.kind is ExitKind.TIMED_OUT else ""
    state_type = end_seen(run.exit.kind).value.upper()
    server.end(run.run_id, state_type, run.exit.message, name=name)
