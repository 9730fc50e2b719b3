"""`rank`: one node's part of a job that runs over several nodes.

The `train` flow of the gang starts it, with the place where the ranks meet.
It takes the lease that the gang holds for it and then is a run like any other:
its own container, limits, log and clean-up. It ends when its program does, or
when the gang is over.
"""

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Failed

from flows.train import run_attempt
from headway.errors import HeadwayError
from headway.flowlock import hold_flow
from headway.gang import Meeting
from headway.model.job_text import job_nodes
from headway.server import RANK
from headway.site import current_site


@flow(name=RANK, validate_parameters=False, persist_result=False)
def rank(gang: str, attempt: int, number: int, address: str, port: int) -> State[Any]:
    """Run one node's part of the job of run `gang`. The flow `train` starts it.

    Args:
        gang: Id of the run that leads.
        attempt: Its attempt.
        number: Which part: 1, 2, …
        address: Where the parts meet.
        port: The port there.
    """
    site = current_site()
    run_id = str(flow_run.get_id())
    with hold_flow(site.settings.state_dir, run_id):
        try:
            site.ledger.leases.take(gang, attempt, number, run_id)
            job = site.ledger.runs.get(run_id).job
        except HeadwayError as error:
            return Failed(message=str(error))
        meeting = Meeting(gang, attempt, address, port, number, job_nodes(job))
        return run_attempt(site, run_id, job, meeting)
