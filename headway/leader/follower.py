"""The follower: hands runs to the engines whose submit host this node is, and follows them.

One process for all of their pools and all of their jobs. For each pool it is what the scheduler is
for a pool of nodes, with `EngineQueue` in the place of a plan; it leads the pool in a term that the
ledger gives it; where it leads not, it stands by.
"""

import logging
from collections.abc import Callable
from functools import partial

import anyio
from prefect.client.orchestration import PrefectClient, get_client

from headway.leader.process import Scheduler, be_leader
from headway.leader.step_pages import StepPages
from headway.ledger.leaders import LEADS_S
from headway.node.daemon import follower_daemon
from headway.scheduler.engine_jobs import EngineJobs, open_engine
from headway.scheduler.engine_queue import EngineQueue
from headway.scheduler.reconciler import Reconciler
from headway.site import Site
from headway.worker.tasks import run_periodically

log = logging.getLogger(__name__)

_ROUND_EVERY_S, _BEAT_EVERY_S = 1.0, 30.0
"""So often logs are read; the engine is asked as `engine.pace` says."""


async def _main(site: Site) -> None:
    pools = site.ledger.engines.pools().values()
    opened: dict[str, EngineJobs] = {}

    def jobs_of(engine: str) -> EngineJobs:
        """Opened when first asked for; one that cannot be is tried again, and the others go on."""
        if engine not in opened:
            opened[engine] = EngineJobs(open_engine(site, engine), site)
        return opened[engine]

    beat = follower_daemon(site.settings).beat
    async with get_client() as client, anyio.create_task_group() as tasks:
        for each in pools:
            own = site.of_pool(each.pool)
            if _is_here(own):
                lead = partial(_lead, own, client, partial(jobs_of, each.engine))
                without = f"nobody follows pool {each.pool}"
                tasks.start_soon(run_periodically, lead, own.clock, without, LEADS_S, None)

        async def alive() -> None:
            beat()  # whether or not it leads any

        without = "the supervisor is not told"
        tasks.start_soon(run_periodically, alive, site.clock, without, LEADS_S, None)


async def _lead(site: Site, client: PrefectClient, jobs_of: Callable[[], EngineJobs]) -> None:
    """Lead the pool of *site* until another process does, or another node is its submit host."""
    if not await anyio.to_thread.run_sync(_is_here, site):
        return
    pool, queue = site.settings.pool, EngineQueue(site, jobs_of())
    leads = Scheduler(
        site, client, queue=queue, reconciler=Reconciler(site),
        daemon=follower_daemon(site.settings), look_every_s=_ROUND_EVERY_S,
    )  # fmt: skip
    # What an earlier process has not shown of them.
    queue.stepped.update(run.run_id for run in site.ledger.runs.under_way([pool]))
    show = partial(StepPages(client, site.ledger).show, queue.stepped)
    beat = partial(client.send_worker_heartbeat, pool, site.settings.node, _BEAT_EVERY_S)
    async with anyio.create_task_group() as beside:

        async def look() -> None:
            if not await anyio.to_thread.run_sync(_is_here, site):
                beside.cancel_scope.cancel()

        for body, without, every_s in (
            (look, "whether this is the submit host is not known", LEADS_S),
            (show, "steps are not on the pages of runs", _ROUND_EVERY_S),
            (beat, f"pool {pool} is taken for one that nobody serves", _BEAT_EVERY_S),
        ):
            beside.start_soon(run_periodically, body, site.clock, without, every_s, None)
        await leads.lead()
        beside.cancel_scope.cancel()


def _is_here(site: Site) -> bool:
    """Whether this node is the submit host of *site*'s pool."""
    pool = site.ledger.engines.pools().get(site.settings.pool)
    return pool is not None and pool.node == site.settings.node


def main() -> None:
    """Be the follower of this node."""
    be_leader(follower_daemon, _main)


if __name__ == "__main__":
    main()
