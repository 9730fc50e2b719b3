"""The `gpu-node` worker: claims what fits, starts it at once, mends what differs.

What of Prefect it overrides and leans on is named in `headway.worker.seams`.
"""

import asyncio
import math
import os
import shutil
import signal
import tempfile
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self
from uuid import UUID

import anyio
import anyio.abc
import httpx
import psutil
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.events.clients import get_events_subscriber
from prefect.events.filters import EventFilter, EventNameFilter
from prefect.flows import Flow
from prefect.logging import get_logger
from prefect.states import Failed
from prefect.workers import process as prefect_process
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from headway.node.daemon import worker_daemon
from headway.node.forkstart import stub_command
from headway.node.janitor import Janitor
from headway.node.prune import complete_removals, tidy
from headway.node.sampler import SAMPLE_EVERY_S, Sampler
from headway.policy.claims import CLAIM_LIMIT_S
from headway.policy.reconcile import FLOW_STARTS_WITHIN_S
from headway.scheduler.queue import PoolQueue
from headway.settings import read_settings
from headway.site import current_site
from headway.this_node import heartbeat, join_site
from headway.worker.cancellation import Preemption, end_flow_process
from headway.worker.claims import Claims
from headway.worker.flow_process import GpuNodeConfiguration, have_fork_server, refusal
from headway.worker.housekeeping import adopt_blocks, adopt_gates, mend
from headway.worker.offers import foreign, instructions, offers
from headway.worker.pool import PrefectPool
from headway.worker.tasks import go_on
from headway.worker.wait_pages import WaitPages

log = get_logger("worker.gpu-node")

_BEFORE_ANY_RUN = datetime(2000, 1, 1, tzinfo=UTC)
_HEARTBEAT_EVERY_S = 5.0
_READING_HOLDS_S = 60.0
"""A node that could not be read for so long says nothing, and so counts as lost."""
_TRIM_LOGS_EVERY_S = 5.0
_JANITOR_EVERY_S = 10.0
_PRUNE_EVERY_S = 3600.0
_PAGES_EVERY_S = 1.0
_CLAIMS_EVERY_S = 0.5
_LISTEN_AGAIN_S = 5.0


class GpuNodeWorker(ProcessWorker):
    """Runs training jobs of one GPU node as soon as the node has headroom for them."""

    type = "gpu-node"
    job_configuration = GpuNodeConfiguration
    _description = "Starts training jobs on this GPU node when they fit, and not before."
    _display_name = "GPU node (headway)"

    @classmethod
    def get_default_base_job_template(cls) -> dict[str, Any]:
        """A work pool has no variables: nothing that it says is used to start a flow."""
        variables = {"type": "object", "properties": {}}
        return {"job_configuration": {"labels": {}}, "variables": variables}

    async def __aenter__(self) -> Self:
        """Begin with an empty folder for temporary files.

        Prefect's runner makes one that all users of a machine would share below `/tmp`: only
        the first of them can write to it, and may exchange what another has there.
        """
        folder = read_settings().state_dir / "tmp"
        shutil.rmtree(folder, ignore_errors=True)  # a worker that is told to leave clears nothing
        folder.mkdir(parents=True, mode=0o700)
        tempfile.tempdir = str(folder)  # of this process, not of what it starts
        await super().__aenter__()
        return self

    async def setup(self) -> None:
        """Open the site, mend what an earlier worker left, and go on listening."""
        # Prefect would load a run's flow into the worker, as its deployment says, to look
        # for hooks when the run is cancelled or crashes. Headway's flows have none.
        vars(prefect_process)["load_flow_from_flow_run"] = _no_hooks
        self._wake = asyncio.Event()
        self._housework = asyncio.Event()
        self._held_up = asyncio.Event()
        self._mended = False
        # Prefect's own handling of SIGTERM kills the flows with the worker. Here
        # the flows go on and the next worker takes them up, so it only leaves.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._leave)
        await anyio.to_thread.run_sync(self._open_site)
        await super().setup()
        self._begin_tasks()
        (self._site.settings.state_dir / "worker.ready").touch()

    def _open_site(self) -> None:
        self._site = current_site()
        worker_daemon(self._site.settings).claim()
        self._site.choose_runtime()
        join_site(self._site)
        self._queue = PoolQueue(self._site)
        self._claims = Claims(self._queue.give_back)
        self._note_start = partial(
            self._site.ledger.flow_starts.note, within_s=FLOW_STARTS_WITHIN_S
        )
        self._sampler = Sampler(self._site)
        self._janitor = Janitor(self._site)
        self._command = stub_command(self._site.settings.state_dir)
        self._reading = self._sampler.tick()
        have_fork_server(self._site.settings.state_dir)

    def _begin_tasks(self) -> None:
        """One each, so that none waits for another."""
        tasks = self._runs_task_group
        assert tasks is not None  # noqa: S101 - set by setup(); for the type checker
        self._pool = PrefectPool(self.client, self._site.settings.pool, self._claimed)
        self._pages = WaitPages(self.client, self._pool, self._site.clock)
        self._preemption = Preemption(self._janitor.stop_container, tasks)
        # The threads of other tasks may all be waiting for an engine or a disk.
        self._heartbeat_thread = anyio.CapacityLimiter(1)
        clock = self._site.clock
        for body, without, every_s, wake in (
            (self._heartbeat, "no heartbeat", _HEARTBEAT_EVERY_S, None),
            (self._sample, "the node was not sampled", SAMPLE_EVERY_S, None),
            (self._trim_logs, "logs were not trimmed", _TRIM_LOGS_EVERY_S, None),
            (self._prune, "old runs were not removed", _PRUNE_EVERY_S, None),
            (self._keep_house, "house not kept", _JANITOR_EVERY_S, self._housework),
            (self._pass, "no pass over the queue", math.inf, self._wake),
            (self._go_on_claiming, "claims wait for the next pass", _CLAIMS_EVERY_S, None),
            (self._tell, "why runs wait is not on their pages", _PAGES_EVERY_S, None),
            (self._listen, "no events from Prefect", _LISTEN_AGAIN_S, None),
        ):
            tasks.start_soon(go_on, body, clock, without, every_s, wake)

    def _leave(self, number: int, _frame: object) -> None:
        log.info("signal %d: the worker leaves, its runs go on", number)
        os._exit(0)

    # -- the pass over the queue ------------------------------------------------------

    def _claimed(self) -> frozenset[UUID]:
        """Runs that this worker is claiming or running now."""
        return self._claims.held | self._submitting_flow_run_ids

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Prefect's poll: the worker's own task makes the pass."""
        self._wake.set()
        return []

    async def _pass(self) -> None:
        if not self._mended:
            return  # first find again what an earlier worker left running
        async with self._pool.passing:
            try:
                await super().get_and_submit_flow_runs()
            finally:  # of an error on the way, or of what Prefect says after the grant
                left = self._claims.without_process - self._submitting_flow_run_ids
                await self._claims.give_back(left)

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        """Take in what is new, and plan: what starts here now."""
        in_thread = anyio.to_thread.run_sync
        due = self._site.clock.now() + timedelta(seconds=self._prefetch_seconds)
        orphans = await in_thread(self._queue.orphans)
        new = await self._pool.new_runs(self._queue.known, orphans, due)
        flow_names = await self._pool.flow_names(new)
        for run in foreign(new, flow_names):
            why = refusal(flow_names.get(run.flow_id, ""))
            await self._pool.write_state(run.id, Failed(message=why))
        offered = offers(new, flow_names)
        if not {offer.queue for offer in offered} <= self._pool.queues:
            await adopt_gates(self._site, self._pool)
        at_once = await in_thread(self._queue.take_in, offered)
        slots = None if self._limiter is None else math.floor(self._limiter.available_tokens)
        decided = await in_thread(partial(self._queue.run_pass, slots=slots))
        if decided.held_up:
            self._held_up.set()
        found = {str(run.id): run for run in new}
        found |= await self._pool.scheduled({*at_once, *decided.start} - found.keys())
        todo = instructions(offered, at_once, decided, found)
        for run_id in decided.preempt:
            self._preemption.begin(run_id)
        for run_id in todo.give_back:
            await in_thread(self._queue.give_back, run_id)
        for run_id, name in todo.rename.items():
            self._pages.rename(run_id, name)
        for run_id in decided.start:
            self._pages.over(run_id)
        for run_id, sentence in decided.waiting.items():
            self._pages.say(run_id, sentence, logged=run_id in decided.logged)
        self._claims.add(run.id for run in todo.start)
        return [self._entry(run) for run in todo.start]

    async def _go_on_claiming(self) -> None:
        """Begin a pass when flow processes have taken claims up that held other runs up."""
        await self._held_up.wait()
        if await anyio.to_thread.run_sync(self._queue.claims_are_taken_up):
            self._held_up.clear()
            self._wake.set()

    def _entry(self, run: FlowRun) -> WorkerFlowRunResponse:
        queue = run.work_queue_id or self.work_pool.default_queue_id
        return WorkerFlowRunResponse(
            work_pool_id=self.work_pool.id, work_queue_id=queue, flow_run=run
        )

    # -- one run ----------------------------------------------------------------------

    async def _submit_run(self, flow_run: FlowRun) -> None:
        """Claim the run from Prefect and start its flow process, or give the claim back.

        Prefect asks its server several times on the way; what it raises would
        end the worker with all its tasks.
        """
        try:
            with anyio.move_on_after(CLAIM_LIMIT_S):
                await super()._submit_run(flow_run)
        except Exception as error:  # noqa: BLE001 - one run of many; the worker goes on
            log.warning("run %s was not started: %s", flow_run.id, error)
        finally:
            self._submitting_flow_run_ids.discard(flow_run.id)
            if flow_run.id in self._claims.without_process:
                log.warning("run %s goes back to the queue: it was not started", flow_run.id)
                self._release_limit_slot(flow_run.id)
                await self._claims.give_back([flow_run.id])

    async def _submit_run_and_capture_errors(
        self, flow_run: FlowRun, task_status: anyio.abc.TaskStatus[Any] | None = None
    ) -> Any:
        try:
            return await super()._submit_run_and_capture_errors(flow_run, task_status)
        except Exception as error:  # noqa: BLE001 - as above, once its flow process has begun
            log.warning("what became of run %s is not known here: %s", flow_run.id, error)
            return error

    async def _cancel_run(self, flow_run_id: UUID) -> None:
        try:
            await super()._cancel_run(flow_run_id)
        except Exception as error:  # noqa: BLE001 - as above; the janitor ends the run
            log.warning("run %s was not cancelled: %s", flow_run_id, error)

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Run the flow process to its end; then look at the run and the queue again."""
        assert isinstance(configuration, GpuNodeConfiguration)  # noqa: S101 - for the type checker
        try:
            configuration.start_with(self._command)
            await anyio.to_thread.run_sync(self._note_start, str(flow_run.id))
            self._claims.process_begins(flow_run.id)
            return await super().run(flow_run, configuration, task_status)
        finally:
            self._claims.process_ended(flow_run.id)
            self._housework.set()
            self._wake.set()

    async def kill_infrastructure(
        self,
        infrastructure_pid: str,
        configuration: ProcessJobConfiguration,
        grace_seconds: int = 30,  # noqa: ARG002 - Prefect's signature
    ) -> None:
        """End the flow process of a run that was cancelled before its flow began."""
        assert isinstance(configuration, GpuNodeConfiguration)  # noqa: S101 - for the type checker
        try:
            end_flow_process(infrastructure_pid, configuration.run_id)
        except (psutil.Error, ValueError) as error:
            log.debug("process %s was not ended: %s", infrastructure_pid, error)

    # -- tasks ------------------------------------------------------------------------

    async def sync_with_backend(self) -> None:
        """Tell Prefect that this worker lives; a server that is away is asked again later."""
        try:
            await super().sync_with_backend()
            if not self._mended:
                return  # not among all that is written at the start: SQLite may lock itself out
            # Work queues and deployments count as ready only while somebody asks this
            # question, which headway does not need: it is asked of a past without runs.
            await self.client.get_scheduled_flow_runs_for_work_pool(
                self.work_pool.name, scheduled_before=_BEFORE_ANY_RUN
            )
        except httpx.HTTPError as error:
            log.warning("Prefect does not answer the heartbeat: %s", error)

    async def _heartbeat(self) -> None:
        """Tell the ledger that this node lives, with what the sampler read last."""
        age_s = (self._site.clock.now() - self._reading.at).total_seconds()
        if age_s > _READING_HOLDS_S:
            log.error("the node could not be read for %.0f s: it takes no new runs", age_s)
            return
        if not await anyio.to_thread.run_sync(
            heartbeat, self._site, self._reading, limiter=self._heartbeat_thread
        ):
            # Two workers of a node would take each other's runs for lost.
            log.error("node %s has another worker, or was removed", self._site.settings.node)
            os._exit(1)

    async def _keep_house(self) -> None:
        await anyio.to_thread.run_sync(have_fork_server, self._site.settings.state_dir)
        new_settings = await adopt_blocks(self._site, self._pool)
        new_gates = await adopt_gates(self._site, self._pool)
        changed = await mend(self._site, self._janitor, self._pool)
        if new_settings or new_gates or changed or not self._mended:
            self._mended = True
            self._wake.set()

    async def _sample(self) -> None:
        self._reading = await anyio.to_thread.run_sync(self._sampler.tick)

    async def _prune(self) -> None:
        await anyio.to_thread.run_sync(complete_removals, self._site)
        if not self._mended:
            return  # how long runs are kept may have changed: the blocks are read first
        await anyio.to_thread.run_sync(tidy, self._site)

    async def _trim_logs(self) -> None:
        await anyio.to_thread.run_sync(self._site.runtime.trim_logs)

    async def _tell(self) -> None:
        """Write onto the pages of runs that wait; apart, since no claim is to wait for it."""
        await self._pages.news.wait()
        await self._pages.write()

    async def _listen(self) -> None:
        """Begin a pass the moment a run is scheduled, instead of with the next poll."""
        names = ["prefect.flow-run.Scheduled", "prefect.flow-run.Cancelled"]
        wanted = EventFilter(event=EventNameFilter(name=names))
        try:
            async with get_events_subscriber(filter=wanted) as events:
                async for _ in events:
                    self._wake.set()
        except Exception as error:  # noqa: BLE001 - polling goes on meanwhile
            log.info("no events from Prefect (%s): polling instead", error)
            await anyio.sleep(_LISTEN_AGAIN_S)


async def _no_hooks(_: object) -> Flow[[], None]:
    """A flow without hooks, instead of what a run's deployment names."""
    return Flow(lambda: None, name="without-hooks")
