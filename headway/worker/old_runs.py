"""Removing runs that ended long ago, in Prefect first, then in the ledger.

Whoever is killed between the two is asked for the same runs again, and finds them gone in Prefect.
"""

from uuid import UUID

import anyio
import httpx
from prefect.logging import get_logger

from headway.policy.retention import ended_before, seconds
from headway.site import Site
from headway.worker.pool import PrefectPool

log = get_logger("worker.gpu-node")

_AT_ONCE = 100
_LOOKED_AT = 10_000


async def delete_expired_runs(site: Site, pool: PrefectPool) -> int:
    """Remove the rows of old runs; of how many."""
    due, done = await anyio.to_thread.run_sync(_expired, site), 0
    for start in range(0, len(due), _AT_ONCE):
        part = due[start : start + _AT_ONCE]
        gone = [run_id for run_id in part if await _is_removed(pool, run_id)]
        await anyio.to_thread.run_sync(site.ledger.old_runs.remove, gone)
        done += len(gone)
    if done:
        log.info("the rows of %d runs that ended long ago were removed", done)
    return done


async def _is_removed(pool: PrefectPool, run_id: str) -> bool:
    """Remove a run from Prefect; one that it cannot remove keeps no other from it."""
    try:
        await pool.remove(UUID(run_id))
    except httpx.HTTPStatusError as error:
        log.warning("run %s is not removed from Prefect: %s; tried again", run_id, error)
        return False
    return True


def _expired(site: Site) -> list[str]:
    """Runs that this node answers for and of which only what usage needs is kept from now on.

    Not of those whose folder lies here still: it may be wanted in the store, or in use.
    """
    teams = site.policy_settings.teams.items()
    before, of_teams = ended_before(
        site.ledger.now(),
        keep_s=seconds(site.node_settings.keep_days),
        of_teams={team: seconds(each.keep_days) for team, each in teams},
    )
    due = site.ledger.old_runs.due(
        site.settings.node, site.settings.pool, before, of_teams, _LOOKED_AT
    )
    return [run_id for run_id in due if not (site.settings.runs_dir / run_id).exists()]
