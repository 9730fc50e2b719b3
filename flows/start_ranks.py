"""Starts the other ranks of a gang, each as a run of the flow `rank` on its own node."""

import httpx
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger

from headway.errors import SiteUnreachable
from headway.model.lease import Lease
from headway.model.run import rank_name
from headway.prefect.client import DEPLOYMENTS, RANK
from headway.run.attempt import Attempt


def start_ranks(attempt: Attempt) -> None:
    """Hand each rank that has not begun to its node, where it gets ready. Idempotent.

    Nothing for a job on one node, and for a run that is a rank itself.

    Raises:
        SiteUnreachable: The flow `rank` is not registered, or Prefect does not answer.
    """
    if attempt.lease is None or attempt.is_rank or attempt.job.nodes == 1:
        return
    held = attempt.site.ledger.leases.untaken(attempt.run_id)
    if not held:
        return
    try:
        deployment = _deployment(attempt.site.settings.pool)
        for each in held:
            _start(deployment, attempt, each)
    except (httpx.HTTPError, ObjectNotFound) as error:
        why = str(error) or type(error).__name__
        raise SiteUnreachable(
            attempt.site.settings.api_url, f"no rank could start: {why}"
        ) from error


def _start(deployment: str, attempt: Attempt, held: Lease) -> None:
    run_deployment(
        deployment,
        parameters={
            "gang": attempt.run_id,
            "attempt": attempt.number,
            "lease": held.lease_id,
            "number": held.gang_rank,
            "nodes": attempt.job.nodes,
        },
        flow_run_name=rank_name(attempt.job.name, held.gang_rank),
        work_queue_name=held.node,
        # By the grant: a claim that was given back and granted anew calls for it once more.
        idempotency_key=f"{attempt.run_id}-lease{held.lease_id}",
        timeout=0,
    )
    get_run_logger().info("rank %d is handed to %s", held.gang_rank, held.node)


def _deployment(pool: str) -> str:
    with get_client(sync_client=True) as client:
        try:
            default = client.read_deployment_by_name(DEPLOYMENTS[RANK])
        except ObjectNotFound:
            raise SiteUnreachable(
                str(client.api_url), f"deployment {DEPLOYMENTS[RANK]} is not registered there"
            ) from None
    return DEPLOYMENTS[RANK] if default.work_pool_name == pool else f"{RANK}/{pool}"
