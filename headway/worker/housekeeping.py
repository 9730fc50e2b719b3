"""What goes on beside starts, in turns: settings are taken over, and what differs is mended."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any
from uuid import UUID

import anyio
import httpx
from prefect.logging import get_logger

from headway.model.prefect_view import PrefectView
from headway.node.janitor import Janitor
from headway.node.mending import Mending, PrefectRun, same
from headway.site import LINE, POLICY, Site
from headway.this_node import adopt
from headway.worker.pool import IDS_A_QUESTION, PrefectPool
from headway.worker.states import mended

log = get_logger("worker.gpu-node")

_ANSWER_S = 10.0
"""So long the janitor waits for Prefect; then it goes on without. That and its pause are less
than the 15 s in which a cancelled run is to be stopped."""


def adopt_settings(site: Site) -> bool:
    """Go by what the ledger keeps of what operators edited; whether any of it is new here.

    A wrong value leaves the last good one.
    """
    new = False
    found = site.ledger.settings.of((f"node/{site.settings.node}", POLICY, LINE))
    for name, kept in found.items():
        if kept != site.adopted.get(name):
            new |= take(partial(adopt, site), name, kept)
    return new


def take(keep_it: Callable[[str, dict[str, Any]], bool], name: str, data: dict[str, Any]) -> bool:
    """Let *keep_it* have what a block says; whether it is new. What is not valid is logged."""
    try:
        new = keep_it(name, data)
    except ValueError as error:
        first = str(error).splitlines()[0]
        log.warning("the block of %s is not used: %s", name, first)
        return False
    if new:
        log.info("the block of %s was read: its settings hold now", name)
    return new


async def mend(
    site: Site,
    janitor: Janitor,
    pool: PrefectPool,
    called: Collection[str],
    *,
    whole: bool,
    starting: Callable[[], frozenset[str]] = frozenset,
) -> bool:
    """One round of a janitor, and what it leaves to be written to Prefect; whether any.

    A Prefect server that is away keeps nobody from what the ledger alone decides.

    Args:
        site: Of this node.
        janitor: That of its node, or of the queue.
        pool: Its work pool.
        called: Runs of which a user may have asked something, beside those always looked at.
        whole: Look at more than what must be looked at soon.
        starting: Gives the runs whose flow process is being started here.
    """
    in_thread = anyio.to_thread.run_sync
    away = not await pool.is_reachable()
    runs = await in_thread(partial(janitor.unsettled, called, whole=whole))
    prefect = await _views(pool, [run.run_id for run in runs], 0.0 if away else _ANSWER_S)
    mendings = await in_thread(janitor.round, runs, prefect, starting())
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
