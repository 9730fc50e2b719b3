"""The `gpu-node` worker: claims what fits, starts it at once, mends what differs.

What of Prefect it overrides and leans on is named in `headway.worker.seams`.
"""

import asyncio
import gc
import math
import os
import shlex
import signal
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import anyio
import anyio.abc
import httpx
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.logging import get_logger
from prefect.states import Failed
from prefect.workers.base import (
    BaseJobConfiguration,
    BaseVariables,
    BaseWorker,
    BaseWorkerResult,
)

from headway.errors import HeadwayError
from headway.ledger import Ledger
from headway.model.prefect_view import News
from headway.model.run import RunState
from headway.node.code_pruning import tidy_code
from headway.node.daemon import revive_supervisor, worker_daemon
from headway.node.environment_pruning import tidy_environments
from headway.node.file_server import serve_files
from headway.node.flowrun import FENCED
from headway.node.forkstart import stub_command
from headway.node.grants import NodeGrants
from headway.node.janitor import Janitor
from headway.node.prune import complete_removals, tidy
from headway.node.sampler import SAMPLE_EVERY_S, Sampler
from headway.node.store_pruning import tidy_store
from headway.node.storing import store_ended
from headway.node.upload_pruning import tidy_uploads
from headway.policy.claims import CLAIM_LIMIT_S
from headway.policy.reconcile import FLOW_STARTS_WITHIN_S
from headway.scheduler.queue import Pass, PoolQueue
from headway.site import current_site
from headway.this_node import heartbeat, join_site
from headway.views.why_document import why_text
from headway.worker.backlog import Backlog
from headway.worker.claims import Claims
from headway.worker.events import LISTEN_AGAIN_S, events
from headway.worker.flow_process import flow_environment, have_fork_server, start
from headway.worker.housekeeping import adopt_blocks, adopt_gates, mend
from headway.worker.members import call_members
from headway.worker.notices import tell_people
from headway.worker.offers import instructions, offers, refused
from headway.worker.old_runs import let_go
from headway.worker.pool import PAGE, SHORT_PAGE, PrefectPool
from headway.worker.tasks import NowAndThen, go_on
from headway.worker.wait_pages import WaitPages

log = get_logger("worker.gpu-node")

_BEFORE_ANY_RUN = datetime(2000, 1, 1, tzinfo=UTC)
_HEARTBEAT_EVERY_S = 5.0
_READING_HOLDS_S = 60.0
"""A node that could not be read for so long says nothing, and so counts as lost."""
_TRIM_LOGS_EVERY_S = 5.0
_HOUSE_EVERY_S = 10.0
_CONTEND_EVERY_S = 2.0
_OWN_QUEUE_EVERY_S = 60.0
"""So often the node's own work queue is looked at, whether or not somebody called."""
_JANITOR_EVERY_S = 5.0
"""A cancelled run is stopped within three rounds, whatever else the worker hears of it."""
_PRUNE_EVERY_S = 3600.0
_PAGES_EVERY_S = 1.0
_SERVE_AGAIN_S = 60.0
_STORE_EVERY_S = 30.0
_CLAIMS_EVERY_S = 0.5
_MEMBERS_EVERY_S = 2.0
_PLAY_EVERY_S = 30.0
_PLAY_PAUSE = 9.0
"""So many times as long as it took, the next time waits."""
_HEARD_WITHIN_S = 60.0
"""So long one wait for a call lasts; then another one begins."""
_NOTICES_EVERY_S = 5.0


def _has_ended(ledger: Ledger, run_id: str) -> bool:
    """Whether the ledger knows how the run ended: then the janitor tells Prefect that."""
    try:
        return ledger.runs.get(run_id).state is RunState.ENDED
    except HeadwayError:
        return False


class FlowEnded(BaseWorkerResult):
    """How a flow process ended."""


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
        self._held_up = asyncio.Event()
        self._granted = asyncio.Event()
        self._ended = asyncio.Event()
        self._news = asyncio.Event()
        self._house = asyncio.Event()
        self._mended = self._house_kept = self._passed = False
        self._called: set[str] = set()
        self._first_page = PAGE
        self._own_due = True
        self._next_round_s = 0.0
        self._loop = asyncio.get_running_loop()
        # Prefect's own handling of SIGTERM kills the flows with the worker. Here
        # the flows go on and the next worker takes them up, so it only leaves.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._leave)
        await anyio.to_thread.run_sync(self._open_site)
        await super().setup()
        self._begin_tasks()
        # What is imported stays: without it a look at a long queue makes far fewer objects than
        # the collector would go through for it.
        gc.collect()
        gc.freeze()
        (self._site.settings.state_dir / "worker.ready").touch()

    def _open_site(self) -> None:
        self._site = current_site()
        worker_daemon(self._site.settings).claim()
        self._site.choose_runtime()
        join_site(self._site)
        self._queue = PoolQueue(self._site)
        self._grants = NodeGrants(self._site)
        self._claims = Claims(self._grants.give_back, self._site.clock)
        self._note_start = partial(
            self._site.ledger.flow_starts.note, within_s=FLOW_STARTS_WITHIN_S
        )
        self._has_ended = partial(_has_ended, self._site.ledger)
        self._sampler = Sampler(self._site)
        self._janitor = Janitor(self._site, self._call_janitor)
        self._command = shlex.split(stub_command(self._site.settings.state_dir))
        self._reading = self._sampler.tick()
        have_fork_server(self._site.settings.state_dir)

    def _begin_tasks(self) -> None:
        """One each, so that none waits for another."""
        self._pool = PrefectPool(self.client, self._site.settings.pool, self._claimed)
        self._backlog = Backlog(self._pool)
        self._pages = WaitPages(self.client, self._pool, self._site.clock, self._waits)
        # The threads of other tasks may all be waiting for an engine or a disk.
        self._heartbeat_thread = anyio.CapacityLimiter(1)
        self._store_thread = anyio.CapacityLimiter(1)
        self._play_thread = anyio.CapacityLimiter(1)
        self._sampling = anyio.Lock()
        self._call_thread = anyio.CapacityLimiter(1)
        self._contend_thread = anyio.CapacityLimiter(1)
        clock = self._site.clock
        self._own_queue_due = NowAndThen(clock, _OWN_QUEUE_EVERY_S)
        for body, without, every_s, wake in (
            (self._heartbeat, "no heartbeat", _HEARTBEAT_EVERY_S, None),
            (self._beat, "the supervisor is not looked after", _HEARTBEAT_EVERY_S, None),
            (self._sample, "the node was not sampled", SAMPLE_EVERY_S, None),
            (self._trim_logs, "logs were not trimmed", _TRIM_LOGS_EVERY_S, None),
            (self._serve_files, "files of runs are not served", _SERVE_AGAIN_S, None),
            (self._store, "ended runs are not brought to the store", _STORE_EVERY_S, None),
            (self._prune, "old runs were not removed", _PRUNE_EVERY_S, None),
            (self._keep_house, "settings were not read", _HOUSE_EVERY_S, self._house),
            (self._mend, "no round of the janitor", _JANITOR_EVERY_S, self._housework),
            (self._pass, "no pass over the queue", math.inf, self._wake),
            (self._go_on_claiming, "claims wait for the next pass", _CLAIMS_EVERY_S, None),
            (self._call_members, "no members of arrays", _MEMBERS_EVERY_S, self._granted),
            (self._play, "when runs start is told by the last time", _PLAY_EVERY_S, None),
            (self._tell_people, "people are not told of ends", _NOTICES_EVERY_S, self._ended),
            (self._tell, "why runs wait is not on their pages", _PAGES_EVERY_S, None),
            (self._listen, "no events from Prefect", LISTEN_AGAIN_S, None),
            (self._hear, "no calls of other workers", LISTEN_AGAIN_S, None),
            (self._contend, "who leads the pool is not known", _CONTEND_EVERY_S, None),
            (self._tell_leader, "the leader was not told", math.inf, self._news),
        ):
            self._tasks.start_soon(go_on, body, clock, without, every_s, wake)

    def _leave(self, number: int, _frame: object) -> None:
        log.info("signal %d: the worker leaves, its runs go on", number)
        os._exit(0)

    # -- the pass over the queue ------------------------------------------------------

    def _claimed(self) -> frozenset[UUID]:
        """Runs that this worker is claiming or running now."""
        return self._claims.held | self._submitting_flow_run_ids

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Prefect's poll: the worker's own task makes the pass."""
        self._first_page, self._own_due = PAGE, self._own_due or self._own_queue_due.is_due()
        self._wake.set()
        return []

    async def _contend(self) -> None:
        """Go on to lead the pool, or stand by until its leader's time is over."""
        in_thread = partial(anyio.to_thread.run_sync, limiter=self._contend_thread)
        led = self._queue.leads
        leader = None if led else await in_thread(self._queue.hear)
        if leader is not None and leader.left_s > 0 and leader.node != self._site.settings.node:
            await anyio.sleep(max(leader.left_s - _CONTEND_EVERY_S, 0.0))
            return
        reaches = await self._pool.is_reachable()
        await in_thread(partial(self._queue.contend, reaches_prefect=reaches))
        if self._queue.leads and not led:
            log.info("this node leads pool %s from now on", self._site.settings.pool)
            self._first_page, self._house_kept = PAGE, False  # it reads the blocks itself
            self._house.set()

    async def _tell_leader(self) -> None:
        """Report the node anew, and have the leader look: a place may have come free here."""
        try:
            await self._sample()
            await self._heartbeat()
        finally:
            self._wake.set()
        leader = self._queue.leader
        if leader is not None and not self._queue.leads:
            await anyio.to_thread.run_sync(self._site.ledger.calls.send, [leader.node])

    async def _pass(self) -> None:
        if not self._mended or not self._house_kept:
            return  # first find again what an earlier worker left running
        async with self._pool.passing:
            try:
                await super().get_and_submit_flow_runs()
            finally:  # of an error on the way, or of what Prefect says after the grant
                left = self._claims.without_process - self._submitting_flow_run_ids
                await self._claims.give_back(left)

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        """Lead the pool where this one does; then give what is to be started here now."""
        in_thread = anyio.to_thread.run_sync
        due = self._site.clock.now() + timedelta(seconds=self._prefetch_seconds)
        new = await self._new_runs(due)
        flow_names = await self._pool.flow_names(new)
        for wrong_id, why in refused(new, flow_names).items():
            await self._pool.write_state(wrong_id, Failed(message=why))
        offered = offers(new, flow_names)
        if self._queue.leads and not {offer.queue for offer in offered} <= self._pool.queues:
            await adopt_gates(self._site, self._pool)
        at_once = await in_thread(self._queue.take_in, offered)
        self._backlog.taken_in(new)
        if self._backlog:
            self._wake.set()
        self._called |= self._queue.called
        decided = await in_thread(self._queue.run_pass)
        self._tell_pages(decided)
        if decided.held_up:
            self._held_up.set()
        for run_id in await in_thread(self._grants.to_stop):
            await in_thread(self._janitor.stop_container, run_id)
        here = await in_thread(self._grants.to_start)
        not_now = {str(run_id) for run_id in self._claimed() | self._claims.resting}
        here = here.without(not_now)
        at_once = [run_id for run_id in (*at_once, *decided.refused) if run_id not in not_now]
        found = {str(run.id): run for run in new}
        found |= await self._pool.scheduled({*at_once, *here.all} - found.keys())
        todo = instructions(offered, at_once, here, found)
        for run_id in todo.give_back:
            await in_thread(self._grants.give_back, run_id)
        for run_id, name in todo.rename.items():
            self._pages.rename(run_id, name)
        self._claims.add(run.id for run in todo.start)
        return [self._entry(run) for run in todo.start]

    def _tell_pages(self, decided: Pass) -> None:
        for run_id in (*decided.refused, *decided.granted):
            self._pages.over(run_id)
            self._granted.set()
        for run_id, sentence in decided.waiting.items():
            self._pages.say(run_id, sentence, logged=run_id in decided.logged)

    async def _new_runs(self, due: datetime) -> list[FlowRun]:
        """What is to be taken in now: nothing in the first pass, which starts what is known.

        A worker that comes back to a long queue needs a while to read it from Prefect. Who does
        not lead the pool takes in what is handed to the node's own work queue and trains nothing,
        such as the parts of a gang.
        """
        if not self._passed:
            self._passed = True
            self._wake.set()
            return []
        leads = self._queue.leads
        if not (leads or self._own_due or self._backlog):
            return []
        self._own_due = False
        first_page, self._first_page = self._first_page, SHORT_PAGE
        own = "" if leads else self._site.settings.node
        known = await anyio.to_thread.run_sync(self._queue.known)
        return await self._backlog.part(known, due, first_page=first_page, queue=own)

    async def _tell_people(self) -> None:
        """At once when a flow process ends; now and then for what others have ended."""
        await tell_people(self._site)

    async def _call_members(self) -> None:
        """Let the next members of arrays come: at once after a grant, and now and then."""
        if self._queue.leads and await call_members(self._site, self._pool):
            self._wake.set()

    @property
    def _slots(self) -> int | None:
        """How many runs `--limit` lets this worker submit now; None without it."""
        return None if self._limiter is None else math.floor(self._limiter.available_tokens)

    async def _play(self) -> None:
        """Tell by when the runs of the queue start: beside the passes, which must not wait.

        Of a queue of thousands it takes seconds of a processor that the passes need, too: so it
        has a tenth of the time.
        """
        begun_s = self._site.clock.monotonic_s()
        found = await anyio.to_thread.run_sync(self._queue.play, limiter=self._play_thread)
        if found is not None:
            self._pages.explain(found.record.run_id, why_text(found.record, found.why))
        await anyio.sleep(_PLAY_PAUSE * (self._site.clock.monotonic_s() - begun_s))

    async def _go_on_claiming(self) -> None:
        """Begin a pass when flow processes have taken claims up that held other runs up."""
        await self._held_up.wait()
        if await anyio.to_thread.run_sync(self._queue.may_claim):
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

        In the place of Prefect's, which asks its server nine times for a run, for
        nothing that is used here. What one of these calls raises would end the worker.
        """
        why, pending = "Prefect did not let it start", False
        try:
            with anyio.move_on_after(CLAIM_LIMIT_S) as limit:
                pending = await self._propose_pending_state(
                    flow_run
                ) or await self._pool.claim_undeployed(flow_run)
                if pending:
                    await self._tasks.start(self._run_to_its_end, flow_run)
            if limit.cancelled_caught:
                why = f"it was not started within {CLAIM_LIMIT_S:.0f} s"
        except Exception as error:  # noqa: BLE001 - one run of many: the worker goes on
            why = f"it was not started: {error}"
        finally:
            self._submitting_flow_run_ids.discard(flow_run.id)
            if flow_run.id in self._claims.without_process:
                log.warning("run %s (%s): %s", flow_run.name, flow_run.id, why)
                self._claims.failed(flow_run.id)
                self._news.set()
                self._release_limit_slot(flow_run.id)
                await self._claims.give_back([flow_run.id])
                if pending:
                    await self._propose_crashed_state(flow_run, why)

    async def _run_to_its_end(
        self, flow_run: FlowRun, task_status: anyio.abc.TaskStatus[int]
    ) -> None:
        """Run the flow process; then look at the run and the queue again."""
        try:
            names = await self._pool.flow_names([flow_run])
            env = flow_environment(str(flow_run.id), names.get(flow_run.flow_id, ""))
            await anyio.to_thread.run_sync(self._note_start, str(flow_run.id))
            ended = await self.run(flow_run, BaseJobConfiguration(env=dict(env)), task_status)
            if ended.status_code not in (0, FENCED):
                why = f"its flow process ended with status {ended.status_code}"
                log.warning("run %s (%s): %s", flow_run.name, flow_run.id, why)
                if not await anyio.to_thread.run_sync(self._has_ended, str(flow_run.id)):
                    await self._propose_crashed_state(flow_run, why)
        finally:
            self._release_limit_slot(flow_run.id)
            self._claims.process_ended(flow_run.id)
            self._ended.set()
            self._housework.set()
            self._news.set()

    async def run(
        self,
        flow_run: FlowRun,
        configuration: BaseJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> BaseWorkerResult:
        """Start the flow process, and wait for its end."""
        env = {name: value for name, value in configuration.env.items() if value is not None}
        process = await start(self._command, env)
        self._claims.process_begins(flow_run.id)
        if task_status is not None:
            task_status.started(process.pid)
        return FlowEnded(identifier=str(process.pid), status_code=await process.wait())

    async def _cancel_run(self, flow_run_id: UUID) -> None:
        """Leave it to the janitor: Prefect's way asks its server, and would end the worker."""
        self._called.add(str(flow_run_id))
        self._housework.set()

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
        resting = tuple(map(str, self._claims.resting))
        reading = replace(self._reading, slots=self._slots, resting=resting)
        if not await anyio.to_thread.run_sync(
            heartbeat, self._site, reading, limiter=self._heartbeat_thread
        ):
            # Two workers of a node would take each other's runs for lost.
            log.error("node %s has another worker, or was removed", self._site.settings.node)
            os._exit(1)

    async def _keep_house(self) -> None:
        await anyio.to_thread.run_sync(have_fork_server, self._site.settings.state_dir)
        leads = self._queue.leads
        if not leads and not self._house_kept:
            await self._pool.have_queues([self._site.settings.node])
        others = self._queue.others if leads else frozenset()
        new_settings = await adopt_blocks(self._site, self._pool, others, follows=not leads)
        new_gates = leads and await adopt_gates(self._site, self._pool)
        if new_settings or new_gates or not self._house_kept:
            self._house_kept = True
            self._wake.set()

    async def _mend(self) -> None:
        called, self._called = self._called, set()
        begun_s = self._site.clock.monotonic_s()
        whole = begun_s >= self._next_round_s  # else it was woken for something
        if whole:
            self._next_round_s = begun_s + _JANITOR_EVERY_S
        line = whole and self._queue.leads
        changed = await mend(self._site, self._janitor, self._pool, called, whole=whole, line=line)
        if changed or not self._mended:
            self._mended = True
            self._news.set()

    def _call_janitor(self) -> None:
        """Begin a round at once; from any thread."""
        self._loop.call_soon_threadsafe(self._housework.set)

    async def _waits(self, run_id: str) -> bool:
        """Whether the ledger has the run waiting now, and not for its user."""
        run = await anyio.to_thread.run_sync(self._site.ledger.runs.get, run_id)
        return run.state is RunState.WAITING and run.suspended_at is None

    async def _sample(self) -> None:
        async with self._sampling:
            self._reading = await anyio.to_thread.run_sync(self._sampler.tick)

    async def _prune(self) -> None:
        failed: list[Exception] = []
        steps = (complete_removals, tidy, tidy_store, tidy_code, tidy_uploads, tidy_environments)
        # How long runs are kept may have changed: the blocks are read first.
        for step in steps if self._house_kept else steps[:1]:
            try:
                await anyio.to_thread.run_sync(step, self._site)
            except Exception as error:  # noqa: BLE001 - the other steps are done all the same
                failed.append(error)
        if self._house_kept:
            await let_go(self._site, self._pool)
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

    async def _tell(self) -> None:
        """Write onto the pages of runs that wait; apart, since no claim is to wait for it."""
        await self._pages.news.wait()
        await self._pages.write()

    async def _listen(self) -> None:
        """Act the moment a run is scheduled or its user wants something, before the next poll.

        Who leads the pool listens and calls whom it concerns: else the server would tell each
        node of every run.
        """
        async with aclosing(events()) as all_news:
            while self._queue.leads and (told := await anext(all_news, None)) is not None:
                if not await anyio.to_thread.run_sync(self._queue.pass_on, told):
                    if told.news is not News.SCHEDULED:
                        self._called.add(told.run_id)
                    if told.news is News.ASKED:
                        self._housework.set()
                self._wake.set()

    async def _hear(self) -> None:
        """Look at what is granted here, or at a run, when who leads the pool says so."""
        calls, node = self._site.ledger.calls, self._site.settings.node
        wait = partial(calls.wait, node, _HEARD_WITHIN_S)
        while True:
            heard = await anyio.to_thread.run_sync(wait, limiter=self._call_thread)
            if runs := set(filter(None, heard)):
                self._called |= runs
                self._own_due = True
                self._housework.set()
            if heard:
                self._wake.set()
