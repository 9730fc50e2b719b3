"""Letting go of runs that ended long ago, in Prefect first, then in the ledger.

Whoever is killed between the two is asked for the same runs again, and finds them gone in Prefect.
"""

from uuid import UUID

import anyio
from prefect.logging import get_logger

from headway.node.row_pruning import old_rows
from headway.site import Site
from headway.worker.pool import PrefectPool

log = get_logger("worker.gpu-node")

_AT_ONCE = 100


async def let_go(site: Site, pool: PrefectPool) -> int:
    """Remove the rows of old runs; of how many."""
    due = await anyio.to_thread.run_sync(old_rows, site)
    for start in range(0, len(due), _AT_ONCE):
        part = due[start : start + _AT_ONCE]
        for run_id in part:
            await pool.remove(UUID(run_id))
        await anyio.to_thread.run_sync(site.ledger.old_runs.remove, part)
    if due:
        log.info("the rows of %d runs that ended long ago were removed", len(due))
    return len(due)
