"""Ranks of gangs become runs: each by the lease that the scheduler's grant holds for it.

A run is made in Prefect under the lease's key, which gives one run however often it is asked; its
node is told, and the flow `rank` takes the lease there. Whoever is killed on the way, the next one
asks with the same key.
"""

import anyio
import httpx
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_logger

from headway.gateway.prefect_calls import team_tag
from headway.ledger.records import RunRecord
from headway.model.lease import Lease
from headway.model.run import rank_name
from headway.prefect.client import RANK
from headway.site import Site
from headway.worker.pool import PrefectPool

log = get_logger("worker.gpu-node")


async def start_ranks(site: Site, pool: PrefectPool) -> None:
    """Have each rank that a gang of the pool holds a lease for, and has not begun, start there."""
    in_thread = anyio.to_thread.run_sync
    held = await in_thread(site.ledger.leases.held_for_ranks, site.settings.pool)
    gangs = await in_thread(site.ledger.runs.of, [lease.run_id for lease in held])
    for lease in held:
        if (gang := gangs.get(lease.run_id)) is None or gang.attempt != lease.attempt:
            continue  # it was over before this was asked
        try:
            run_id = await _make(pool, gang, lease)
        except (ObjectNotFound, httpx.HTTPError) as error:
            log.warning("rank %d of %s does not start: %s", lease.gang_rank, gang.name, error)
            continue
        await in_thread(site.ledger.calls.send, [lease.node], f"{run_id} {RANK}")


async def _make(pool: PrefectPool, gang: RunRecord, lease: Lease) -> str:
    return await pool.make_run(
        {
            "gang": gang.run_id,
            "attempt": lease.attempt,
            "lease": lease.lease_id,
            "number": lease.gang_rank,
            "nodes": gang.nodes,
        },
        flow=RANK,
        name=rank_name(gang.name, lease.gang_rank),
        tags=[team_tag(gang.team), f"gang:{gang.run_id}"],
        # By the grant: a claim that was given back and granted anew calls for it once more.
        key=f"{gang.run_id}-lease{lease.lease_id}",
        queue=lease.node,
    )
