"""The follower: hands runs to the engines whose submit host this node is, and follows them.

One process for all of their pools and all of their jobs. For each pool it is what the scheduler is
for a pool of nodes, with `EngineQueue` in the place of a plan; it leads the pool in a term that the
ledger gives it. It ends when it leads none.
"""

import logging
from functools import partial

import anyio
from anyio.abc import TaskGroup
from prefect.client.orchestration import PrefectClient, get_client

from headway.engine.place import Place
from headway.engine.slurm import SlurmEngine
from headway.leader.process import Scheduler, be_leader
from headway.leader.step_pages import StepPages
from headway.node.daemon import follower_daemon
from headway.scheduler.engine_janitor import EngineJanitor
from headway.scheduler.engine_jobs import EngineJobs
from headway.scheduler.engine_queue import EngineQueue
from headway.site import Site
from headway.worker.tasks import run_periodically

log = logging.getLogger(__name__)

_ROUND_EVERY_S, _BEAT_EVERY_S = 1.0, 30.0
"""So often logs are read; the engine is asked as `engine.pace` says."""


async def _main(site: Site) -> None:
    jobs = EngineJobs(SlurmEngine(Place(site.settings.slurm_dir), site.site_id, site.clock), site)
    pools = site.ledger.engines.pools().values()
    async with get_client() as client, anyio.create_task_group() as beside:
        async with anyio.create_task_group() as leading:
            for name in [each.pool for each in pools if each.node == site.settings.node]:
                own = site.of_pool(name)
                _serve(own, client, EngineQueue(own, jobs), leading, beside)
        beside.cancel_scope.cancel()


def _serve(
    site: Site, client: PrefectClient, queue: EngineQueue, leading: TaskGroup, beside: TaskGroup
) -> None:
    """Begin to lead the pool of *site*, and to do what is done beside that."""
    pool, clock = site.settings.pool, site.clock
    leads = Scheduler(
        site, client, queue=queue, janitor=EngineJanitor(site),
        daemon=follower_daemon(site.settings), look_every_s=_ROUND_EVERY_S,
    )  # fmt: skip
    leading.start_soon(leads.lead)
    # What an earlier process has not shown of them.
    queue.stepped.update(run.run_id for run in site.ledger.engines.under_way(pool))
    show = partial(StepPages(client, site.ledger).show, queue.stepped)
    beat = partial(client.send_worker_heartbeat, pool, site.settings.node, _BEAT_EVERY_S)
    for body, without, every_s in (
        (show, "steps are not on the pages of runs", _ROUND_EVERY_S),
        (beat, f"pool {pool} is taken for one that nobody serves", _BEAT_EVERY_S),
    ):
        beside.start_soon(run_periodically, body, clock, without, every_s, None)


def main() -> None:
    """Be the follower of this node."""
    be_leader(follower_daemon, _main)


if __name__ == "__main__":
    main()
