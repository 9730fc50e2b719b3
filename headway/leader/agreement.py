"""Has ledger and Prefect agree about the runs of a pool: Prefect is asked, and told."""

import logging
from collections.abc import Collection, Mapping
from functools import partial
from uuid import UUID

import anyio
import httpx

from headway.model.prefect_view import PrefectView
from headway.node.mending import same
from headway.policy.agree import ON_PREFECT
from headway.scheduler.reconciler import Mending, PrefectRun, Reconciler
from headway.site import Site
from headway.worker.pool import PAGE, PrefectPool
from headway.worker.states import mended

log = logging.getLogger(__name__)

_ANSWER_S = 10.0
"""So long Prefect is waited for. That and the pause between two rounds are less than the 15 s in
which a cancelled run is to be stopped."""
_WRITE_S, _WRITES_S = 5.0, 5.0
"""So long one write lasts, and after so long none begins: users' wishes are asked for again first.
What is left comes in a later round."""


async def agree_with_prefect(
    site: Site,
    reconciler: Reconciler,
    pool: PrefectPool,
    called: Collection[str],
    *,
    whole: bool,
) -> list[Mending]:
    """One round of *reconciler*, and what it leaves to be written; what was changed.

    A Prefect server that is away keeps nobody from what the ledger alone decides.

    Args:
        site: Of the scheduler.
        reconciler: That of its pool.
        pool: Its work pool.
        called: Runs of which a user may have asked something, beside those always looked at.
        whole: Look at more than what must be looked at soon.
    """
    in_thread = anyio.to_thread.run_sync
    runs = await in_thread(partial(reconciler.unsettled, called, whole=whole))
    prefect = await _views(pool, [run.run_id for run in runs])
    mendings = await in_thread(reconciler.round, runs, prefect)
    until_s = site.clock.monotonic_s() + _WRITES_S
    for mending in mendings:
        if mending.change in ON_PREFECT and site.clock.monotonic_s() < until_s:
            await _write(site, pool, mending)
    return mendings


async def _views(pool: PrefectPool, run_ids: list[str]) -> Mapping[str, PrefectRun]:
    """What Prefect says; unknown of those that a slow server did not come to."""
    said = dict.fromkeys(run_ids, PrefectRun(PrefectView.UNKNOWN))
    if not run_ids or not await pool.is_reachable():
        return said
    try:
        with anyio.fail_after(_ANSWER_S):
            for start in range(0, len(run_ids), PAGE):
                page = run_ids[start : start + PAGE]
                answers = await pool.views(page)
                said = {key: known for key, known in said.items() if key not in page} | answers
    except (httpx.HTTPError, TimeoutError) as error:
        log.warning(
            "Prefect does not say which runs were cancelled or suspended: %s",
            str(error) or "no answer",
        )
    return said


async def _write(site: Site, pool: PrefectPool, mending: Mending) -> None:
    """Change the run's state, unless ledger or Prefect have another one by now.

    No pass comes between: it could grant the run a place.
    """
    async with pool.passing:
        run = await anyio.to_thread.run_sync(site.ledger.runs.get, mending.run.run_id)
        if not same(mending.run, run):
            return
        try:
            with anyio.fail_after(_WRITE_S):
                state = mended(mending, site.clock.now())
                await pool.write_over(mending.prefect.state_id, UUID(run.run_id), state)
        except (httpx.HTTPError, TimeoutError) as error:
            why = str(error) or "no answer"
            log.warning("state of run %s not written: %s; tried again", run.run_id, why)
