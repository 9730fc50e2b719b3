"""What the worker does for its node beside the queue, in turns: settings, and what differs."""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any
from uuid import UUID

import anyio
import httpx
from prefect.logging import get_logger

from headway.model.prefect_view import PrefectView
from headway.node.janitor import Janitor
from headway.node.mending import Mending, PrefectRun, same
from headway.scheduler.limits import GATES, gates_document
from headway.site import LINE, POLICY, Site
from headway.this_node import adopt, keep_for
from headway.worker.pool import IDS_A_QUESTION, PrefectPool
from headway.worker.states import mended

log = get_logger("worker.gpu-node")

_NODE = "headway-node"
_ANSWER_S = 10.0
"""So long the janitor waits for Prefect; then it goes on without. That and its pause are less
than the 15 s in which a cancelled run is to be stopped."""


async def adopt_blocks(
    site: Site, pool: PrefectPool, others: AbstractSet[str] = frozenset(), *, follows: bool
) -> bool:
    """Take over what the operator edited in the UI; whether any of it is new here.

    A wrong value leaves the last good one.

    Args:
        site: Of this node.
        pool: Its work pool.
        others: Nodes that this one reads the blocks for: what was edited is kept in the ledger.
        follows: Another node reads the blocks, and keeps them in the ledger.
    """
    new, node = False, site.settings.node
    nodes = await pool.blocks(_NODE) if others else {}
    for slug, document, name in (
        (_NODE, node, f"node/{node}"),
        ("headway-container-policy", "site", POLICY),
        ("headway-line", "site", LINE),
    ):
        if follows:
            data = await anyio.to_thread.run_sync(site.ledger.settings.get, name)
            if data == site.adopted.get(name):  # as nearly always: a transaction less
                continue
        elif others and slug == _NODE:
            data = nodes.get(node)
        else:
            data = await pool.block(slug, document)
        if data is not None and await _take(partial(adopt, site), name, data):
            new = True
    for other in nodes.keys() & others:
        await _take(partial(keep_for, site), f"node/{other}", nodes[other])
    return new


async def _take(
    take: Callable[[str, dict[str, Any]], bool], name: str, data: dict[str, Any]
) -> bool:
    """Let *take* have what a block says; whether it is new. What is not valid is logged."""
    try:
        new = await anyio.to_thread.run_sync(take, name, data)
    except ValueError as error:
        first = str(error).splitlines()[0]
        log.warning("the block of %s is not used: %s", name, first)
        return False
    if new:
        log.info("the block of %s was read: its settings hold now", name)
    return new


async def adopt_gates(site: Site, pool: PrefectPool) -> bool:
    """Take over what the operator set on the work pool and its queues; whether it is new.

    Each node of the pool has a work queue of its own from then on.
    """
    known, name = await anyio.to_thread.run_sync(site.ledger.nodes.all), site.settings.pool
    nodes = {record.node.name for record in known if record.node.pool == name}
    document, name = gates_document(await pool.gates(nodes)), f"{GATES}/{name}"
    return await anyio.to_thread.run_sync(site.ledger.settings.put, name, document)


async def mend(
    site: Site,
    janitor: Janitor,
    pool: PrefectPool,
    called: Collection[str],
    *,
    whole: bool,
    line: bool,
) -> bool:
    """One round of the janitor, and what it leaves to be written to Prefect; whether any.

    A Prefect server that is away keeps nobody from what the ledger alone decides.

    Args:
        site: Of this node.
        janitor: Its janitor.
        pool: Its work pool.
        called: Runs of which a user may have asked something, beside those always looked at.
        whole: Look at more than what this node has.
        line: That is, at some of the queue, too.
    """
    in_thread = anyio.to_thread.run_sync
    away = not await pool.is_reachable()
    runs = await in_thread(partial(janitor.unsettled, called, whole=whole, line=line))
    # A grant that no pass has seen yet is among the untaken ones: they are read after the runs.
    untaken = await in_thread(site.ledger.leases.unstarted, site.settings.node)
    starting = frozenset({*map(str, pool.claimed()), *(lease.run_id for lease in untaken)})
    prefect = await _views(pool, [run.run_id for run in runs], 0.0 if away else _ANSWER_S)
    mendings = await in_thread(janitor.round, runs, prefect, starting)
    for mending in mendings:
        await _write(site, pool, mending)
    return bool(mendings)


async def _views(pool: PrefectPool, run_ids: list[str], wait_s: float) -> Mapping[str, PrefectRun]:
    """What Prefect says; unknown of those that a slow server did not come to."""
    said = dict.fromkeys(run_ids, PrefectRun(PrefectView.UNKNOWN))
    try:
        with anyio.fail_after(wait_s):
            for start in range(0, len(run_ids), IDS_A_QUESTION):
                page = run_ids[start : start + IDS_A_QUESTION]
                answers = await pool.views(page)
                said = {key: known for key, known in said.items() if key not in page} | answers
    except (httpx.HTTPError, TimeoutError) as error:
        log.warning("Prefect does not say what its users want: %s", str(error) or "no answer")
    return said


async def _write(site: Site, pool: PrefectPool, mending: Mending) -> None:
    """Change the run's state, unless ledger or Prefect have another one by now."""
    run = await anyio.to_thread.run_sync(site.ledger.runs.get, mending.run.run_id)
    if not same(mending.run, run):
        return
    try:
        state = mended(mending, site.clock.now())
        await pool.write_over(mending.prefect.state_id, UUID(run.run_id), state)
    except httpx.HTTPError as error:
        log.warning("state of run %s not written: %s; tried again next round", run.run_id, error)
