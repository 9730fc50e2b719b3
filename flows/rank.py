"""`rank`: one node's part of a job that runs over several nodes.

The scheduler starts it with its grant, and the ledger says where the ranks meet.
It takes the lease that the gang holds for it and then is a run like any other:
its own container, limits, log and clean-up. It ends when its program does, or
when the gang is over.
"""

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import Abort
from prefect.runtime import flow_run
from prefect.states import Failed, Scheduled

from flows.leaving import deaf_to_sigterm
from flows.train import run_attempt
from flows.wishes import keep_wish
from headway.errors import HeadwayError, LeaseLost, LedgerUnreachable
from headway.ledger.database import Connections
from headway.node.flowlock import hold_flow
from headway.prefect.client import RANK
from headway.run.rendezvous import Meeting
from headway.site import Site, current_site


@flow(name=RANK, validate_parameters=False, persist_result=False, retries=0)
def rank(*, gang: str, attempt: int, lease: int, number: int, nodes: int) -> State[Any]:
    """Run one node's part of the job of run `gang`. The scheduler starts it.

    Args:
        gang: Id of the run that leads.
        attempt: Its attempt.
        lease: What the gang holds here for this part.
        number: Which part: 1, 2, …
        nodes: How many parts there are.
    """
    site = current_site(Connections.BRIEF)
    run_id = str(flow_run.get_id())
    with hold_flow(site.settings.state_dir, run_id):
        keep_wish(run_id)
        state = run_part(site, run_id, lease, Meeting(gang, attempt, "", 0, number, nodes))
        if state.type is StateType.SCHEDULED:
            raise Abort(f"back to the queue: {state.message}")  # of which the scheduler tells
        deaf_to_sigterm()  # until Prefect, which is told now, takes its handler away
        return state


def run_part(site: Site, run_id: str, lease: int, meeting: Meeting) -> State[Any]:
    """Take *lease* for flow run *run_id*, and run it; SCHEDULED when it is to be tried again."""
    try:
        site.ledger.leases.take(lease, meeting.gang_id, meeting.attempt, run_id)
    except LedgerUnreachable as error:
        # Its container may run already: a database that was away for a moment must not end it.
        return Scheduled(name="AwaitingRetry", message=str(error))
    except LeaseLost as error:
        return Failed(message=f"nothing is held for this part any more: {error.cause}")
    except HeadwayError as error:
        return Failed(message=str(error))
    return run_attempt(site, run_id, meeting)
