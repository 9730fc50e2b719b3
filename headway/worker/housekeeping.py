"""What the worker does for its node beside the queue, in turns: settings, and what differs."""

from uuid import UUID

import anyio
from prefect.logging import get_logger

from headway.node.janitor import Janitor
from headway.scheduler.limits import GATES, gates_document
from headway.site import LINE, POLICY, Site
from headway.this_node import adopt
from headway.worker.pool import PrefectPool
from headway.worker.states import mended

log = get_logger("worker.gpu-node")


async def adopt_blocks(site: Site, pool: PrefectPool) -> bool:
    """Take over what the operator edited in the UI; whether any of it is new.

    A wrong value leaves the last good one.
    """
    new, node = False, site.settings.node
    for slug, document, name in (
        ("headway-node", node, f"node/{node}"),
        ("headway-container-policy", "site", POLICY),
        ("headway-line", "site", LINE),
    ):
        data = await pool.block(slug, document)
        try:
            if data is not None and await anyio.to_thread.run_sync(adopt, site, name, data):
                new = True
                log.info("block %s/%s was read: its settings hold now", slug, document)
        except ValueError as error:
            first = str(error).splitlines()[0]
            log.warning("block %s/%s is not used: %s", slug, document, first)
    return new


async def adopt_gates(site: Site, pool: PrefectPool) -> bool:
    """Take over what the operator set on the work pool and its queues; whether it is new."""
    nodes = {each.node.name for each in await anyio.to_thread.run_sync(site.ledger.nodes.all)}
    document = gates_document(await pool.gates(site.settings.node, nodes))
    name = f"{GATES}/{site.settings.pool}"
    return await anyio.to_thread.run_sync(site.ledger.settings.put, name, document)


async def mend(site: Site, janitor: Janitor, pool: PrefectPool) -> bool:
    """One round of the janitor, and what it leaves to be written to Prefect; whether any."""
    # Between a grant and its note among the claimed lies a pass: not half of one is read.
    async with pool.passing:
        runs = await anyio.to_thread.run_sync(janitor.unsettled)
        starting = frozenset(str(run_id) for run_id in pool.claimed())
    prefect = await pool.views([run.run_id for run in runs])
    mendings = await anyio.to_thread.run_sync(janitor.round, runs, prefect, starting)
    for mending in mendings:
        await pool.write_state(UUID(mending.run_id), mended(mending, site.clock.now()))
    return bool(mendings)
