"""What operators edit in Prefect: kept in the ledger, by which every process of the site goes."""

from functools import partial

import anyio

from headway.policy.settings import LINE
from headway.scheduler.limits import GATES, gates_document
from headway.site import POLICY, Site
from headway.this_node import keep
from headway.worker.housekeeping import take
from headway.worker.pool import PrefectPool

_NODE = "headway-node"


async def keep_blocks(site: Site, pool: PrefectPool, nodes: frozenset[str]) -> bool:
    """Keep what the blocks of the site and of *nodes* say; whether any of it is new.

    A wrong value leaves the last good one.
    """
    said = {f"node/{n}": data for n, data in (await pool.blocks(_NODE)).items() if n in nodes}
    for slug, name in (("headway-container-policy", POLICY), ("headway-line", LINE)):
        if (data := await pool.block(slug, "site")) is not None:
            said[name] = data
    keep_it = partial(keep, site)
    new = [await anyio.to_thread.run_sync(take, keep_it, *each) for each in said.items()]
    return any(new)


async def keep_gates(site: Site, pool: PrefectPool, nodes: frozenset[str]) -> bool:
    """Keep what is set on the work pool and its queues; whether it is new.

    Each of *nodes* has a work queue of its own from then on.
    """
    document = gates_document(await pool.gates(nodes))
    name = f"{GATES}/{site.settings.pool}"
    return await anyio.to_thread.run_sync(site.ledger.settings.put, name, document)
