"""The `gpu-node` worker: starts on its node what the scheduler grants there, mends what differs.

What of Prefect it overrides and leans on is named in `headway.worker.seams`.
"""

import asyncio
import gc
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import anyio
import anyio.abc
import httpx
from prefect.client.schemas.objects import FlowRun
from prefect.logging import get_logger
from prefect.workers.base import (
    BaseJobConfiguration,
    BaseVariables,
    BaseWorker,
    BaseWorkerResult,
)

from headway.errors import HeadwayError
from headway.ledger.calls import scheduler_of
from headway.ledger.database import Connections
from headway.model.node import NodeReading
from headway.node.daemon import revive_supervisor, worker_daemon
from headway.node.expiry import tidy_environments, tidy_store, tidy_uploads, trim_code
from headway.node.file_server import serve_files
from headway.node.flowlock import FENCED, status_of
from headway.node.forkstart import ENGINE, Program, fork
from headway.node.gpu_watch import GpuWatch
from headway.node.grants import NodeGrants
from headway.node.janitor import Janitor
from headway.node.prune import complete_removals, tidy
from headway.node.sampler import SAMPLE_EVERY_S, Sampler
from headway.node.storing import store_ended
from headway.policy.claims import START_LIMIT_S
from headway.policy.reconcile import FLOW_STARTS_WITHIN_S, Action
from headway.prefect.client import FLOW, RANK
from headway.runtime.listening import listening_ports
from headway.site import current_site
from headway.this_node import heartbeat, join_site, try_means_again
from headway.worker.flow_process import flow_environment, have_fork_server
from headway.worker.housekeeping import adopt_settings
from headway.worker.old_runs import delete_expired_runs
from headway.worker.pool import PrefectPool
from headway.worker.starts import Starts
from headway.worker.tasks import run_periodically

log = get_logger("worker.gpu-node")

_BEFORE_ANY_RUN = datetime(2000, 1, 1, tzinfo=UTC)
_HEARTBEAT_EVERY_S = 5.0
_READING_HOLDS_S = 60.0
"""A node that could not be read for so long says nothing, and so counts as lost."""
_TRIM_LOGS_EVERY_S = 5.0
_HOUSE_EVERY_S = 10.0
_JANITOR_EVERY_S = 5.0
"""What the ledger has ended is stopped within a round, whether or not the worker was called."""
_PRUNE_EVERY_S = 3600.0
_SERVE_AGAIN_S = 60.0
_STORE_EVERY_S = 30.0
_HEAR_AGAIN_S = 5.0
_LOOK_EVERY_S = 10.0
"""So often grants are looked for, whether or not the scheduler called."""
_HEARD_WITHIN_S = 60.0
"""So long one wait for a call lasts; then another one begins."""


class GpuNodeWorker(BaseWorker[BaseJobConfiguration, BaseVariables, BaseWorkerResult]):
    """Runs training jobs of one GPU node as soon as the node has headroom for them."""

    type = "gpu-node"
    _description = "Starts training jobs on this GPU node when they fit, and not before."
    _display_name = "GPU node (headway)"

    @classmethod
    def get_default_base_job_template(cls) -> dict[str, Any]:
        """A work pool has no variables: nothing that it says is used to start a flow."""
        variables = {"type": "object", "properties": {}}
        return {"job_configuration": {"labels": {}}, "variables": variables}

    async def setup(self) -> None:
        """Open the site, mend what an earlier worker left, and go on listening."""
        self._wake = asyncio.Event()
        self._housework = asyncio.Event()
        self._news = asyncio.Event()
        self._mended = self._house_kept = False
        self._called: set[str] = set()
        self._flows: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()
        # Prefect's own handling of SIGTERM kills the flows with the worker. Here
        # the flows go on and the next worker takes them up, so it only leaves.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._leave)
        await anyio.to_thread.run_sync(self._open_site)
        await super().setup()
        self._begin_tasks()
        gc.collect()
        gc.freeze()  # what is imported stays
        (self._site.settings.state_dir / "worker.ready").touch()

    def _open_site(self) -> None:
        self._site = current_site(Connections.ONE)
        worker_daemon(self._site.settings).claim()
        self._site.choose_runtime()
        join_site(self._site)
        self._grants = NodeGrants(self._site)
        self._starts = Starts(self._site.clock)
        self._note_start = partial(
            self._site.ledger.flow_starts.note,
            within_s=FLOW_STARTS_WITHIN_S,
            take_up_s=START_LIMIT_S,
        )
        self._sampler = Sampler(self._site)
        self._janitor = Janitor(self._site, self._call_janitor)
        self._gpu_watch = GpuWatch(self._site)
        self._reading = self._sampler.tick()
        have_fork_server(self._site.settings.state_dir)

    def _begin_tasks(self) -> None:
        """One each, so that none waits for another."""
        self._pool = PrefectPool(self.client, self._site.settings.pool)
        # The threads of other tasks may all be waiting for an engine or a disk.
        self._heartbeat_thread = anyio.CapacityLimiter(1)
        self._store_thread = anyio.CapacityLimiter(1)
        self._sampling = anyio.Lock()
        self._call_thread = anyio.CapacityLimiter(1)
        clock = self._site.clock
        for body, without, every_s, wake in (
            (self._heartbeat, "no heartbeat", _HEARTBEAT_EVERY_S, None),
            (self._beat, "the supervisor is not looked after", _HEARTBEAT_EVERY_S, None),
            (self._sample, "the node was not sampled", SAMPLE_EVERY_S, None),
            (self._trim_logs, "logs were not trimmed", _TRIM_LOGS_EVERY_S, None),
            (self._serve_files, "files of runs are not served", _SERVE_AGAIN_S, None),
            (self._store, "ended runs are not brought to the store", _STORE_EVERY_S, None),
            (self._prune, "old runs were not removed", _PRUNE_EVERY_S, None),
            (self._keep_house, "settings were not read", _HOUSE_EVERY_S, None),
            (self._mend, "no round of the janitor", _JANITOR_EVERY_S, self._housework),
            (self._take_up, "what was granted does not start", _LOOK_EVERY_S, self._wake),
            (self._hear, "no calls of the scheduler", _HEAR_AGAIN_S, None),
            (self._tell_scheduler, "the scheduler was not told", math.inf, self._news),
        ):
            self._tasks.start_soon(run_periodically, body, clock, without, every_s, wake)

    def _leave(self, number: int, _frame: object) -> None:
        log.info("signal %d: the worker leaves, its runs go on", number)
        os._exit(0)

    # -- what is granted here -----------------------------------------------------------

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Prefect's poll: the worker's own task looks for grants."""
        self._wake.set()
        return []

    async def _tell_scheduler(self) -> None:
        """Report the node anew, and have the scheduler look: a place may have come free here."""
        try:
            await self._sample()
            await self._heartbeat()
        finally:
            whom = [scheduler_of(self._site.settings.pool)]
            await anyio.to_thread.run_sync(self._site.ledger.calls.send, whom)

    async def _take_up(self) -> None:
        """Stop what the scheduler has marked, and start what it has granted or called for."""
        if not self._mended or not self._house_kept:
            return  # first find again what an earlier worker left running
        in_thread = anyio.to_thread.run_sync
        for run_id in await in_thread(self._grants.to_stop):
            await in_thread(self._janitor.stop_container, run_id)
        granted = await in_thread(self._grants.to_start)
        called, self._flows = self._flows, {}
        await self._begin(called | dict.fromkeys(granted, FLOW))

    async def _begin(self, flows: Mapping[str, str], *, again: bool = False) -> None:
        """Start the flow of each run, unless it is being started or rests; *again*: see there."""
        not_now = self._starts.held | self._starts.resting
        begun = [run_id for run_id in flows if run_id not in not_now]
        if not begun or not await self._pool.is_reachable():
            return  # a flow process would ask Prefect in vain
        for run_id in begun:
            if run_id not in self._starts.held:  # nor begun meanwhile
                self._starts.begin(run_id)
                self._tasks.start_soon(partial(self._run_flow, run_id, flows[run_id], again=again))

    async def _run_flow(self, run_id: str, flow: str, *, again: bool) -> None:
        """Start the flow process, and wait for its end; then look at the run and the queue again.

        What it raised would end the worker. If this process was started *again*, in the place of
        one that had died, the next one rests first: where each breaks at once, as with half a
        Prefect server, too many would end the run.
        """
        in_thread = anyio.to_thread.run_sync
        try:
            env = flow_environment(run_id, flow)
            await in_thread(self._note_start, run_id)
            flow_process = Program("flow", ENGINE, env)
            begun = await in_thread(fork, self._site.settings.state_dir, flow_process)
            await anyio.wait_readable(begun.pidfd)
            os.close(begun.pidfd)
            status = await in_thread(status_of, self._site.settings.state_dir, run_id, begun.pid)
            if status not in (0, FENCED):
                log.warning("run %s: its flow process ended with status %d", run_id, status)
        except Exception as error:  # noqa: BLE001 - one run of many: the worker goes on
            log.warning("run %s was not started: %s", run_id, error)
        finally:
            await self._over(run_id, again=again)

    async def _over(self, run_id: str, *, again: bool) -> None:
        untaken = False
        try:
            untaken = await anyio.to_thread.run_sync(self._grants.give_back, run_id)
        except HeadwayError as error:
            log.warning("the lease of run %s ends with its deadline: %s", run_id, error)
        self._starts.over(run_id, well=not untaken and not again)
        self._housework.set()
        self._news.set()

    @property
    def _slots(self) -> int | None:
        """How many runs `--limit` lets this worker start now; None without it."""
        return None if self._limit is None else max(self._limit - len(self._starts.held), 0)

    async def run(
        self,
        flow_run: FlowRun,
        configuration: BaseJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> BaseWorkerResult:
        """Prefect's way to start a run, which is none here: see `_take_up`."""
        raise NotImplementedError(f"{flow_run.id} starts when the scheduler grants it a place")

    async def _cancel_run(self, flow_run_id: UUID) -> None:
        """Leave it to the scheduler: Prefect's way asks its server, and would end the worker."""

    @property
    def _tasks(self) -> anyio.abc.TaskGroup:
        assert self._runs_task_group is not None  # noqa: S101 - set by setup()
        return self._runs_task_group

    # -- tasks ------------------------------------------------------------------------

    async def sync_with_backend(self) -> None:
        """Tell Prefect that this worker lives; a server that is away is asked again later."""
        try:
            await super().sync_with_backend()
            # Work queues and deployments count as ready only while somebody asks this
            # question, which headway does not need: it is asked of a past without runs.
            await self.client.get_scheduled_flow_runs_for_work_pool(
                self.work_pool.name, scheduled_before=_BEFORE_ANY_RUN
            )
        except httpx.HTTPError as error:
            log.warning("Prefect does not answer the heartbeat: %s", error)

    async def _beat(self) -> None:
        """Tell this machine that the worker lives; and bring back who brings back the others."""
        settings = self._site.settings
        worker_daemon(settings).beat()  # here: it says that this loop goes round
        if await anyio.to_thread.run_sync(revive_supervisor, settings):
            log.warning("the supervisor had died: it is started again")

    async def _heartbeat(self) -> None:
        """Tell the ledger that this node lives, with what the sampler read last."""
        age_s = (self._site.clock.now() - self._reading.at).total_seconds()
        if age_s > _READING_HOLDS_S:
            log.error("the node could not be read for %.0f s: it takes no new runs", age_s)
            return
        resting = tuple(self._starts.resting)
        reading = replace(self._reading, slots=self._slots, resting=resting)
        if not await anyio.to_thread.run_sync(
            self._tell_ledger, reading, limiter=self._heartbeat_thread
        ):
            # Two workers of a node would take each other's runs for lost.
            log.error("node %s has another worker, or was removed", self._site.settings.node)
            os._exit(1)

    def _tell_ledger(self, reading: NodeReading) -> bool:
        """Whoever sees *reading* there may rely on it that GPUs found sick by then are drained."""
        self._gpu_watch.settle()
        ports = tuple(sorted(listening_ports()))  # here: to read them takes longer than the GPUs
        return heartbeat(self._site, replace(reading, busy_ports=ports))

    async def _keep_house(self) -> None:
        in_thread = anyio.to_thread.run_sync
        await in_thread(have_fork_server, self._site.settings.state_dir)
        if await in_thread(adopt_settings, self._site):
            self._news.set()
        if not self._house_kept:
            self._house_kept = True
            self._wake.set()

    async def _mend(self) -> None:
        in_thread = anyio.to_thread.run_sync
        called, self._called = self._called, set()
        runs = await in_thread(self._janitor.unsettled, called)
        done = await in_thread(self._janitor.round, runs, self._starts.held)
        again = [each.run for each in done if each.action is Action.START_FLOW]
        flows = {run.run_id: FLOW if run.gang_id is None else RANK for run in again}
        await self._begin(flows, again=True)
        if len(done) > len(again) or not self._mended:
            self._mended = True
            self._news.set()
            self._wake.set()

    def _call_janitor(self) -> None:
        """Begin a round at once; from any thread."""
        self._loop.call_soon_threadsafe(self._housework.set)

    async def _sample(self) -> None:
        async with self._sampling:
            reading = await anyio.to_thread.run_sync(self._sampler.tick)
            is_sick = await anyio.to_thread.run_sync(self._gpu_watch.look, reading)
            self._reading = reading
        if is_sick:
            await self._heartbeat()

    async def _prune(self) -> None:
        failed: list[Exception] = []
        steps = (
            complete_removals,
            tidy,
            tidy_store,
            trim_code,
            tidy_uploads,
            tidy_environments,
            try_means_again,
        )
        # How long runs are kept may have changed: the blocks are read first.
        for step in steps if self._house_kept else steps[:1]:
            try:
                await anyio.to_thread.run_sync(step, self._site)
            except Exception as error:  # noqa: BLE001 - the other steps are done all the same
                failed.append(error)
        if self._house_kept:
            await delete_expired_runs(self._site, self._pool)
        if failed:
            raise failed[0]

    async def _serve_files(self) -> None:
        await anyio.to_thread.run_sync(serve_files, self._site)
        await anyio.sleep_forever()

    async def _store(self) -> None:
        # As long as it takes to copy, in a thread that nothing else waits for.
        await anyio.to_thread.run_sync(store_ended, self._site, limiter=self._store_thread)

    async def _trim_logs(self) -> None:
        await anyio.to_thread.run_sync(self._site.runtime.trim_logs)

    async def _hear(self) -> None:
        """Look at what is granted here, or at a run, when the scheduler says so."""
        calls, node = self._site.ledger.calls, self._site.settings.node
        wait = partial(calls.wait, node, _HEARD_WITHIN_S)
        while True:
            heard = await anyio.to_thread.run_sync(wait, limiter=self._call_thread)
            for run_id, _, flow in (each.partition(" ") for each in heard if each):
                if flow:
                    self._flows[run_id] = flow
                else:
                    self._called.add(run_id)
                    self._housework.set()
            if heard:
                self._wake.set()
