"""Members of arrays become runs: the next one as soon as none of its array waits.

The ledger says which one is next; a run is made in Prefect under the member's key, which gives
one run however often it is asked; then the ledger takes it for that member. Whoever is killed on
the way, the next one asks with the same key. See docs/development/adr/0026.
"""

import anyio
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.logging import get_logger

from headway.gateway.prefect_calls import team_tag
from headway.ledger.arrays import member_document
from headway.ledger.records import ArrayRecord, RunRecord
from headway.model.array import member_key, member_name
from headway.model.run import RunState
from headway.site import Site
from headway.worker.pool import PrefectPool

log = get_logger("worker.gpu-node")
_AT_ONCE = 20


async def call_members(site: Site, pool: PrefectPool, ahead: int = 1) -> int:
    """Make the next member of each array of which fewer than *ahead* wait a run; how many."""
    due = await anyio.to_thread.run_sync(site.ledger.arrays.due, site.settings.pool, ahead)
    called = 0
    for array in due:
        last = min(array.created + min(ahead, _AT_ONCE), array.size)
        try:
            for index in range(array.created + 1, last + 1):
                made = await _call(site, pool, array, index)
                called += 1
                if made is None or made.state is RunState.ENDED:
                    break  # the array was cancelled meanwhile, or another process makes them
        except (ObjectNotFound, PrefectHTTPStatusError) as error:
            # Its queue or the deployment was deleted, or Prefect does not take this job: what is
            # wrong with one array must not keep the others waiting.
            log.warning("array %s (%s): no next member: %s", array.name, array.array_id, error)
    return called


async def _call(site: Site, pool: PrefectPool, array: ArrayRecord, index: int) -> RunRecord | None:
    run_id = await pool.make_run(
        {"job": member_document(array, index)},
        name=member_name(array.name, index),
        tags=[team_tag(array.team)],
        key=member_key(array.array_id, index),
        queue=array.queue,
    )
    return await anyio.to_thread.run_sync(site.ledger.arrays.join, array.array_id, index, run_id)
