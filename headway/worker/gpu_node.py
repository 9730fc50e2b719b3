"""The `gpu-node` worker: claims what fits, starts it at once, mends what differs.

This is the only import of Prefect inside headway/. The private seams of
Prefect that the worker rests on are named in `SEAMS`; a test fails with their
names when a new version of Prefect moves one.
"""

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import anyio
import anyio.abc
import httpx
import psutil
from coolname import data as coolname
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate, LogCreate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterNextScheduledStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import State, StateDetails, StateType
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.clients import get_events_subscriber
from prefect.events.filters import EventFilter, EventNameFilter
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.flows import Flow
from prefect.states import Cancelled, Completed, Failed, Running
from prefect.workers import process as prefect_process
from prefect.workers.process import (
    ProcessJobConfiguration,
    ProcessWorker,
    ProcessWorkerResult,
)
from pydantic import PrivateAttr

from headway.clock import Clock
from headway.errors import HeadwayError, shown
from headway.model.run import ExitKind
from headway.node.daemon import worker_daemon
from headway.node.forkserver import start_server, stub_command
from headway.node.janitor import Janitor, Mending, PrefectRun
from headway.node.prune import tidy
from headway.node.sampler import SAMPLE_EVERY_S, Sampler
from headway.policy.reconcile import Action, PrefectView
from headway.prefect.client import FLOW as TRAIN
from headway.project import FLOWS, PROJECT
from headway.scheduler.limits import GATES, Gates, gates_document
from headway.scheduler.queue import Line, Offer, Pass
from headway.settings import read_settings
from headway.site import LINE, POLICY, current_site
from headway.views.run_report import waiting_text

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import FlowRun

SEAMS = (
    "_get_scheduled_flow_runs",
    "_logger",
    "_prefetch_seconds",
    "_propose_pending_state",
    "_runs_task_group",
    "_submit_scheduled_flow_runs",
    "_submitting_flow_run_ids",
    "_work_pool",
    "_work_pool_name",
)
"""Private names of `ProcessWorker` that are overridden or used here."""

HOOKS_FROM = "load_flow_from_flow_run"
"""The name in `prefect.workers.process` of what loads a flow to look for hooks."""

PRELOAD = (
    "prefect.engine",
    "prefect.flow_engine",
    "prefect.task_engine",
    "fastapi.encoders",  # Prefect encodes a flow's parameters with it
    "flows.train",
    "headway.runtime.docker",
    "headway.estimate.run_picture",
)
"""What the fork server imports once, so that no run waits or pays for it."""

PRELOAD_ENV = {"OPENBLAS_NUM_THREADS": "1"}
"""With it numpy starts no threads: a process that has some must not fork."""

ENTRYPOINT = "PREFECT__FLOW_ENTRYPOINT"
"""With it Prefect's engine imports that flow, and asks no deployment."""

RUN_ID = "PREFECT__FLOW_RUN_ID"

_NEVER = datetime.max.replace(tzinfo=UTC)
_BEFORE_ANY_RUN = datetime(2000, 1, 1, tzinfo=UTC)
_JANITOR_EVERY_S = 10.0
_HEARTBEAT_EVERY_S = 5.0
_PRUNE_EVERY_S = 3600.0
_STATE_WRITES_A_PASS = 25
_PAGES_EVERY_S = 1.0
_PAGES_KNOWN = 10_000
_LONGEST_NAME = 63
_NAMES: dict[str, Any] = dict(coolname.config)
"""What Prefect makes up names of runs from."""
_PAGE = 200
_RESCHEDULE_DELAY = timedelta(seconds=2)


class GpuNodeConfiguration(ProcessJobConfiguration):
    """How one flow process is started: from this installation's own table, `FLOWS`.

    Whoever may write to Prefect's API chooses job variables, the pool's template,
    a deployment's entrypoint and its pull steps. Nothing of that is read here:
    it would run as the worker's owner.
    """

    _run_id: str = PrivateAttr(default="")
    _flow: str = PrivateAttr(default="")

    @classmethod
    async def resolve_for_flow_run(
        cls, flow_run: "FlowRun", *, client: "PrefectClient", **_: object
    ) -> "GpuNodeConfiguration":
        """The configuration for *flow_run*, of which only its id and its flow's name count."""
        flow = await client.read_flow(flow_run.flow_id)
        # Streaming ties the flow to the worker's life: with it a flow whose worker
        # is killed ends Crashed, without it Completed (measured).
        configuration = cls(stream_output=False, working_dir=PROJECT)
        configuration.prepare_for_flow_run(flow_run, flow=flow if flow.name in FLOWS else None)
        configuration._run_id, configuration._flow = str(flow_run.id), flow.name
        return configuration

    def start_with(self, command: str) -> None:
        """Start the flow of the run with *command*.

        Raises:
            HeadwayError: It is not one of this installation's.
        """
        if self._flow not in FLOWS:
            raise HeadwayError(refusal(self._flow))
        self.command = command
        self._command_configured = True
        self.env[ENTRYPOINT] = FLOWS[self._flow]


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
        vars(prefect_process)[HOOKS_FROM] = _no_hooks
        self._site = await anyio.to_thread.run_sync(current_site)
        worker_daemon(self._site.settings).claim()
        await anyio.to_thread.run_sync(self._site.take_name)
        await anyio.to_thread.run_sync(self._site.choose_runtime)
        self._line = Line(self._site)
        self._janitor = Janitor(self._site)
        self._sampler = Sampler(self._site)
        self._wake = asyncio.Event()
        self._housework = asyncio.Event()
        self._passing = asyncio.Lock()
        self._alive: set[UUID] = set()
        self._pages = WaitPages(self._site.clock)
        self._untold: dict[str, tuple[str, bool]] = {}
        self._stopping: set[UUID] = set()
        self._queues: frozenset[str] = frozenset()
        self._flow_names: dict[UUID, str] = {}
        self._pool = self._site.settings.pool
        self._mended = False
        self._has_queue = False
        # Prefect's own handling of SIGTERM kills the flows with the worker. Here
        # the flows go on and the next worker takes them up, so it only leaves.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._leave)
        await anyio.to_thread.run_sync(self._site.join)
        state_dir = self._site.settings.state_dir
        await anyio.to_thread.run_sync(self._have_fork_server)
        self._command = stub_command(state_dir)
        await super().setup()
        assert self._runs_task_group is not None  # noqa: S101 - set by setup(); for the type checker
        for loop in (
            self._listen,
            self._pass_when_woken,
            self._keep_house,
            self._sample,
            self._prune,
            self._tell,
        ):
            self._runs_task_group.start_soon(loop)
        (state_dir / "worker.ready").touch()

    def _have_fork_server(self) -> None:
        """Start it unless it runs; without it runs start a second or two later each."""
        try:
            start_server(self._site.settings.state_dir, PRELOAD, {**os.environ, **PRELOAD_ENV})
        except HeadwayError as error:
            self._logger.warning("%s", error)

    def _leave(self, number: int, _frame: object) -> None:
        self._logger.info("signal %d: the worker leaves, its runs go on", number)
        os._exit(0)

    def _give_way(self) -> None:
        """Leave to whoever has the node now: two workers would take each other's runs for lost."""
        self._logger.error("node %s has another worker, or was removed", self._site.settings.node)
        os._exit(1)

    # -- the line ---------------------------------------------------------------------

    async def get_and_submit_flow_runs(self) -> "list[FlowRun]":
        """One pass over the line; trouble with server or ledger waits for the next pass."""
        if not self._mended:
            return []  # first find again what an earlier worker left running
        async with self._passing:
            try:
                return await super().get_and_submit_flow_runs()
            except (httpx.HTTPError, HeadwayError) as error:
                self._logger.warning("no pass over the line: %s", error)
            except Exception:  # a supervisor's loop: it must outlive what nobody foresaw
                self._logger.exception("no pass over the line this time")
            return []

    async def sync_with_backend(self) -> None:
        """Tell Prefect that this worker lives; a server that is away is asked again later."""
        try:
            await super().sync_with_backend()
            if not self._mended:
                return  # not among all that is written at the start: SQLite may lock itself out
            # Work queues and deployments count as ready only while somebody asks this
            # question, which the line does not need: it is asked of a past without runs.
            await self.client.get_scheduled_flow_runs_for_work_pool(
                self._work_pool_name, scheduled_before=_BEFORE_ANY_RUN
            )
        except httpx.HTTPError as error:
            self._logger.warning("Prefect does not answer the heartbeat: %s", error)

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        """What the line does not know yet, newest first until all of a page is known.

        Prefect's own question returns the oldest of the line, again and again.
        """
        busy = self._submitting_flow_run_ids | self._alive
        due = self._site.clock.now() + timedelta(seconds=self._prefetch_seconds)
        known = self._line.known
        found: list[FlowRun] = []
        while True:
            page = await self.client.read_flow_runs(
                work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[self._pool])),
                flow_run_filter=_scheduled_before(due),
                sort=FlowRunSort.EXPECTED_START_TIME_DESC,
                limit=_PAGE,
                offset=len(found),
            )
            found += page
            if len(page) < _PAGE or all(str(run.id) in known for run in page):
                break
        orphans = await anyio.to_thread.run_sync(self._line.orphans)
        new = [r for r in found if r.id not in busy and str(r.id) not in known]
        new += await self._scheduled_of({UUID(i) for i in orphans} - busy - {r.id for r in new})
        return [self._entry(run) for run in new]

    async def _scheduled_of(self, run_ids: set[UUID]) -> "list[FlowRun]":
        """Those of *run_ids* that Prefect would let a worker start now."""
        if not run_ids:
            return []
        return await self.client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                id=FlowRunFilterId(any_=list(run_ids)),
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
            )
        )

    def _entry(self, run: "FlowRun") -> WorkerFlowRunResponse:
        assert self._work_pool is not None  # noqa: S101 - read in setup(); for the type checker
        queue = run.work_queue_id or self._work_pool.default_queue_id
        return WorkerFlowRunResponse(
            work_pool_id=self._work_pool.id, work_queue_id=queue, flow_run=run
        )

    async def _submit_scheduled_flow_runs(
        self, flow_run_response: list[WorkerFlowRunResponse]
    ) -> "list[FlowRun]":
        """Take in what is new, start what the plan starts here, say why the others wait."""
        listed = [entry.flow_run for entry in flow_run_response]
        offered = {str(run.id): run for run in await self._refuse_foreign(listed)}
        offers = [_offer(run, self._flow_names[run.flow_id]) for run in offered.values()]
        if not {offer.queue for offer in offers} <= self._queues:
            await self._read_queues()
        offers.sort(key=lambda offer: offer.submitted_at)
        at_once = await anyio.to_thread.run_sync(self._line.take_in, offers)
        decided = await anyio.to_thread.run_sync(self._line.look)
        for run_id in decided.preempt:
            self._preempt(UUID(run_id))
        wanted = list(dict.fromkeys([*at_once, *decided.start]))
        missing = {UUID(run_id) for run_id in wanted if run_id not in offered}
        offered |= {str(run.id): run for run in await self._scheduled_of(missing)}
        for run_id in decided.start:
            if run_id not in offered:  # cancelled in the meantime
                await anyio.to_thread.run_sync(self._line.give_back, run_id)
        chosen = [self._entry(offered[run_id]) for run_id in wanted if run_id in offered]
        self._alive |= {entry.flow_run.id for entry in chosen}
        started = await super()._submit_scheduled_flow_runs(chosen)
        for offer in offers:
            if offer.run_id in offered and offer.name != offered[offer.run_id].name:
                self._pages.rename(offer.run_id, offer.name)
        for run_id in decided.start:
            self._untold.pop(run_id, None)
            self._pages.over(run_id)
        await self._say_why(decided, offered)
        return started

    async def _say_why(self, decided: Pass, offered: "dict[str, FlowRun]") -> None:
        """Write what runs wait for into their states; what is too much waits for the next pass."""
        for run_id, sentence in decided.waiting.items():
            _, unlogged = self._untold.pop(run_id, ("", False))
            self._untold[run_id] = sentence, unlogged or run_id in decided.logged
        told = list(self._untold)[:_STATE_WRITES_A_PASS]
        unseen = {UUID(run_id) for run_id in told if run_id not in offered}
        found = offered | {str(run.id): run for run in await self._scheduled_of(unseen)}
        for run_id in told:
            sentence, logged = self._untold.pop(run_id)
            if run_id in found:
                state = _scheduled("AwaitingHeadroom", sentence, found[run_id])
                await self._write_state(UUID(run_id), state)
                self._pages.say(run_id, sentence, logged=logged)

    async def _tell(self) -> None:
        """Write onto the pages of runs that wait; apart, since no claim is to wait for it."""
        while True:
            await self._pages.news.wait()
            try:
                await self._pages.write(self.client)
            except (httpx.HTTPError, HeadwayError) as error:
                self._logger.warning("why runs wait is not on their pages: %s", error)
            except Exception:  # a supervisor's loop: it must outlive what nobody foresaw
                self._logger.exception("why runs wait is not on their pages")
            await anyio.sleep(_PAGES_EVERY_S)

    async def _refuse_foreign(self, runs: "Sequence[FlowRun]") -> "list[FlowRun]":
        """Those of *runs* whose flow is this installation's; the others end, in words."""
        for flow_id in {run.flow_id for run in runs} - self._flow_names.keys():
            with suppress(ObjectNotFound):  # deleted, and its runs with it
                self._flow_names[flow_id] = (await self.client.read_flow(flow_id)).name
        own = []
        for run in runs:
            name = self._flow_names.get(run.flow_id, "")
            if name in FLOWS:
                own.append(run)
            else:
                await self._write_state(run.id, Failed(message=refusal(name)))
        return own

    def _preempt(self, run_id: UUID) -> None:
        """Stop the run's container within its grace time; its flow then gives its place back."""
        if run_id in self._stopping:
            return
        self._stopping.add(run_id)

        async def stop() -> None:
            try:
                await anyio.to_thread.run_sync(self._janitor.stop_container, str(run_id))
            except HeadwayError as error:
                self._logger.warning("run %s was not stopped: %s", run_id, error)
            finally:
                self._stopping.discard(run_id)

        assert self._runs_task_group is not None  # noqa: S101 - set by setup()
        self._runs_task_group.start_soon(stop)

    async def _propose_pending_state(self, flow_run: "FlowRun") -> bool:
        claimed = await super()._propose_pending_state(flow_run)
        if not claimed:
            await anyio.to_thread.run_sync(self._line.give_back, str(flow_run.id))
            self._alive.discard(flow_run.id)
        return claimed

    async def run(
        self,
        flow_run: "FlowRun",
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Run the flow process to its end; then look at the run and the line again."""
        assert isinstance(configuration, GpuNodeConfiguration)  # noqa: S101 - for the type checker
        try:
            configuration.start_with(self._command)
            return await super().run(flow_run, configuration, task_status)
        finally:
            self._alive.discard(flow_run.id)
            self._housework.set()
            self._wake.set()

    async def kill_infrastructure(
        self,
        infrastructure_pid: str,
        configuration: ProcessJobConfiguration,
        grace_seconds: int = 30,  # noqa: ARG002 - Prefect's signature
    ) -> None:
        """End a flow process that was cancelled before its flow began.

        Prefect's API hands out the pid, and anybody may have written it there: only a
        process that was started for this very run is signalled.
        """
        assert isinstance(configuration, GpuNodeConfiguration)  # noqa: S101 - for the type checker
        try:
            process = psutil.Process(int(infrastructure_pid))
            if process.environ().get(RUN_ID) == configuration._run_id:  # noqa: SLF001 - our own
                process.send_signal(signal.SIGTERM)
        except (psutil.Error, ValueError) as error:
            self._logger.debug("process %s was not ended: %s", infrastructure_pid, error)

    # -- loops ------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Look at the line the moment a run is scheduled, instead of with the next poll."""
        names = ["prefect.flow-run.Scheduled", "prefect.flow-run.Cancelled"]
        wanted = EventFilter(event=EventNameFilter(name=names))
        while True:
            try:
                async with get_events_subscriber(filter=wanted) as events:
                    async for _ in events:
                        self._wake.set()
            except Exception as error:  # noqa: BLE001 - a supervisor's loop: polling goes on meanwhile
                self._logger.info("no events from Prefect (%s): polling instead", error)
            await anyio.sleep(5.0)

    async def _pass_when_woken(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.get_and_submit_flow_runs()

    async def _sample(self) -> None:
        """Read the node once a second; a reading that is late moves the next, none is made up."""
        while True:
            begun = self._site.clock.monotonic_s()
            try:
                await anyio.to_thread.run_sync(self._sampler.tick)
            except Exception:  # a supervisor's loop: it must outlive what nobody foresaw
                self._logger.exception("the node was not sampled this time")
            await anyio.sleep(max(begun + SAMPLE_EVERY_S - self._site.clock.monotonic_s(), 0.1))

    async def _prune(self) -> None:
        """Let go of old runs' folders, as the operator has set it for this node."""
        while True:
            await anyio.sleep(_PRUNE_EVERY_S)
            try:
                await anyio.to_thread.run_sync(tidy, self._site)
            except Exception:  # a supervisor's loop: it must outlive what nobody foresaw
                self._logger.exception("old runs were not removed this time")

    async def _keep_house(self) -> None:
        """Heartbeat, log limits and the janitor's rounds."""
        next_round = 0.0
        while True:
            now = self._site.clock.monotonic_s()
            try:
                if not await anyio.to_thread.run_sync(self._site.heartbeat):
                    self._give_way()
                if now >= next_round or self._housework.is_set():
                    self._housework.clear()
                    next_round = now + _JANITOR_EVERY_S
                    await anyio.to_thread.run_sync(self._have_fork_server)
                    await self._read_blocks()
                    await self._read_queues()
                    await self._mend()
                    if not self._mended:
                        self._mended = True
                        self._wake.set()
            except (httpx.HTTPError, HeadwayError) as error:
                self._logger.warning("house not kept this time: %s", error)
            except Exception:  # a supervisor's loop: it must outlive what nobody foresaw
                self._logger.exception("house not kept this time")
            with anyio.move_on_after(_HEARTBEAT_EVERY_S):
                await self._housework.wait()

    async def _read_blocks(self) -> None:
        """Take over what the operator edited in the UI; a wrong value leaves the last good one."""
        for slug, document, name in (
            ("headway-node", self._site.settings.node, f"node/{self._site.settings.node}"),
            ("headway-container-policy", "site", POLICY),
            ("headway-line", "site", LINE),
        ):
            try:
                block = await self.client.read_block_document_by_name(document, slug)
            except ObjectNotFound:
                continue
            try:
                changed = await anyio.to_thread.run_sync(self._site.adopt, name, block.data)
            except ValueError as error:
                first = str(error).splitlines()[0]
                self._logger.warning("block %s/%s is not used: %s", slug, document, first)
                continue
            if changed:
                self._logger.info("block %s/%s was read: its settings hold now", slug, document)
                self._wake.set()

    async def _read_queues(self) -> None:
        """Take over what the operator set on the work pool and its queues."""
        if not self._has_queue:
            await self._make_queue()
        pool = await self.client.read_work_pool(self._pool)
        queues = await self.client.read_work_queues(work_pool_name=self._pool)
        nodes = {node.name for node in await anyio.to_thread.run_sync(self._site.nodes)}
        default = min((q.priority or 1 for q in queues if q.name == "default"), default=1)
        # In Prefect 1 is the most urgent; a node's own queue is as urgent as the default one.
        gates = Gates(
            priorities={
                queue.name: -(default if queue.name in nodes else queue.priority or default)
                for queue in queues
            },
            paused=frozenset(queue.name for queue in queues if queue.is_paused),
            pool_paused=bool(pool.is_paused),
            pool_limit=pool.concurrency_limit,
            queue_limits={
                queue.name: queue.concurrency_limit
                for queue in queues
                if queue.concurrency_limit is not None
            },
        )
        self._queues = frozenset(queue.name for queue in queues)
        name, document = f"{GATES}/{self._pool}", gates_document(gates)
        if await anyio.to_thread.run_sync(self._site.ledger.settings.put, name, document):
            self._wake.set()

    async def _make_queue(self) -> None:
        """A queue of this node's name: what is handed to it runs here and nowhere else."""
        name = self._site.settings.node
        try:
            await self.client.read_work_queue_by_name(name, work_pool_name=self._pool)
        except ObjectNotFound:
            with suppress(ObjectAlreadyExists):
                await self.client.create_work_queue(
                    name, f"Runs on node {name} only", work_pool_name=self._pool
                )
        self._has_queue = True

    async def _mend(self) -> None:
        # Between a grant and its note in `_alive` lies a pass: not half of one is looked at.
        async with self._passing:
            runs = await anyio.to_thread.run_sync(self._janitor.unsettled)
            starting = frozenset(str(i) for i in self._alive | self._submitting_flow_run_ids)
        prefect = await self._ask_prefect([run.run_id for run in runs])
        mendings = await anyio.to_thread.run_sync(self._janitor.round, runs, prefect, starting)
        for mending in mendings:
            if UUID(mending.run_id) not in self._alive:
                await self._write_state(UUID(mending.run_id), _mended_state(mending))
        if mendings:
            self._wake.set()

    async def _ask_prefect(self, run_ids: Sequence[str]) -> dict[str, PrefectRun]:
        """What Prefect says of each run; a run that is missing in the answer was deleted."""
        found: dict[str, PrefectRun] = {}
        for start in range(0, len(run_ids), 100):
            page = [UUID(run_id) for run_id in run_ids[start : start + 100]]
            for run in await self.client.read_flow_runs(
                flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=page))
            ):
                message = (run.state.message if run.state is not None else None) or ""
                view = PrefectView.of(run.state_type)
                found[str(run.id)] = PrefectRun(view, run.run_count, message)
        return found

    async def _write_state(self, run_id: UUID, state: "State[Any]") -> None:
        """Write a state, unless this worker has claimed the run in the meantime.

        Prefect accepts SCHEDULED over PENDING and RUNNING (measured), so a
        late annotation would un-claim a run. The lock that guards the claims
        guards this too; and the ledger would still refuse a second lease.
        """
        if run_id in self._alive | self._submitting_flow_run_ids:
            return
        try:
            await self.client.set_flow_run_state(run_id, state, force=True)
        except httpx.HTTPError as error:
            self._logger.warning("state of run %s not written: %s", run_id, error)


class WaitPages:
    """Why runs wait, on their pages: lines of their logs, and one artifact for each."""

    KEY = "waiting"

    def __init__(self, clock: Clock) -> None:
        """Nothing is known yet of any page."""
        self.news = asyncio.Event()
        self._clock = clock
        self._said: dict[str, str] = {}
        self._logs: list[LogCreate] = []
        self._names: dict[str, str] = {}
        self._artifacts: dict[str, UUID] = {}

    def say(self, run_id: str, sentence: str, *, logged: bool) -> None:
        """Why the run waits now; *logged* for its log, too."""
        now = self._clock.now()
        self._said[run_id] = waiting_text(sentence, now)
        if logged:
            self._logs.append(
                LogCreate(
                    name="headway",
                    level=logging.INFO,
                    message=f"waits: {sentence}",
                    timestamp=now,
                    flow_run_id=UUID(run_id),
                )
            )
        self.news.set()

    def over(self, run_id: str) -> None:
        """The run was given its place; its artifact must not go on saying that it waits."""
        if run_id in self._said or run_id in self._artifacts:
            self._said[run_id] = waiting_text("", self._clock.now())
            self.news.set()

    def rename(self, run_id: str, name: str) -> None:
        """Call the run by its job's name."""
        self._names[run_id] = name
        self.news.set()

    async def write(self, client: "PrefectClient") -> None:
        """Write all of it; what comes in meanwhile is written the next time."""
        self.news.clear()
        names, logs, said = self._names, self._logs, self._said
        self._names, self._logs, self._said = {}, [], {}
        try:
            await self._write(client, names, logs, said)
        except httpx.TransportError:  # the server is away: again when it is back
            self._names, self._logs = names | self._names, logs + self._logs
            self._said = said | self._said
            self.news.set()
            raise

    async def _write(
        self,
        client: "PrefectClient",
        names: dict[str, str],
        logs: list[LogCreate],
        said: dict[str, str],
    ) -> None:
        for run_id, name in names.items():
            await client.update_flow_run(UUID(run_id), name=name)
        if logs:
            await client.create_logs(logs)
        if unseen := [UUID(run_id) for run_id in said if run_id not in self._artifacts]:
            await self._find(client, unseen)
        for run_id, text in said.items():
            await self._put(client, run_id, text)
        self._artifacts = dict(list(self._artifacts.items())[-_PAGES_KNOWN:])

    async def _find(self, client: "PrefectClient", run_ids: Sequence[UUID]) -> None:
        """Artifacts that another worker has made, or this one before it was started anew."""
        for start in range(0, len(run_ids), _PAGE):
            made = await client.read_artifacts(
                artifact_filter=ArtifactFilter(
                    key=ArtifactFilterKey(any_=[self.KEY]),
                    flow_run_id=ArtifactFilterFlowRunId(any_=run_ids[start : start + _PAGE]),
                )
            )
            self._artifacts |= {str(each.flow_run_id): each.id for each in made}

    async def _put(self, client: "PrefectClient", run_id: str, text: str) -> None:
        known = self._artifacts.pop(run_id, None)
        if known is None:
            made = await client.create_artifact(
                ArtifactCreate(
                    key=self.KEY,
                    type="markdown",
                    description="What it waits for, and when it is expected to start",
                    data=text,
                    flow_run_id=UUID(run_id),
                )
            )
            known = made.id
        else:
            await client.update_artifact(known, ArtifactUpdate(data=text))
        self._artifacts[run_id] = known  # the newest last


def refusal(flow: str) -> str:
    """Why a run of *flow* is not started, and what to do."""
    return (
        f"flow {shown(flow)} is not one of headway's ({', '.join(sorted(FLOWS))}), so its run was "
        "not started; give it to a work pool with a worker of its own, such as "
        "`prefect worker start --type process`"
    )


async def _no_hooks(_: object) -> "Flow[[], None]":
    """A flow without hooks, instead of what a run's deployment names."""
    return Flow(lambda: None, name="without-hooks")


def _scheduled_before(due: datetime) -> FlowRunFilter:
    return FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        next_scheduled_start_time=FlowRunFilterNextScheduledStartTime(before_=due),
    )


def is_made_up(name: str) -> bool:
    """Whether Prefect made up a run's *name*, such as ``vague-kakapo``, since nobody gave one."""
    adjective, _, noun = name.partition("-")
    adjectives, nouns = (_words(part) for part in _NAMES["an"]["lists"])
    return adjective in adjectives and noun in nouns


@cache
def _words(name: str) -> frozenset[str]:
    """The words of a list of coolname, from which Prefect's names are made."""
    part = _NAMES[name]
    inner = (_words(each) for each in part.get("lists", ()))
    return frozenset(part.get("words", ())).union(*inner)


def _offer(run: "FlowRun", flow: str) -> Offer:
    document = run.parameters.get("job") if flow == TRAIN else None
    name = run.name
    if isinstance(document, dict) and is_made_up(name):
        named = document.get("name")
        name = named if isinstance(named, str) and 0 < len(named) <= _LONGEST_NAME else name
    return Offer(
        run_id=str(run.id),
        name=name,
        document=document if isinstance(document, dict) else None,
        submitted_at=run.created or _NEVER,
        queue=run.work_queue_name or "default",
    )


def _scheduled(name: str, message: str, run: "FlowRun | None" = None) -> "State[Any]":
    state: State[Any] = State(type=StateType.SCHEDULED, name=name, message=message)
    when = run.next_scheduled_start_time if run is not None else None
    soon = current_site().clock.now() + _RESCHEDULE_DELAY
    details = StateDetails(scheduled_time=when or soon)
    return state.model_copy(update={"state_details": details})


def _mended_state(mending: Mending) -> "State[Any]":
    if mending.action is Action.RESCHEDULE:
        return _scheduled("AwaitingRetry", "its flow process is gone; another one takes it up")
    if mending.action is Action.SET_RUNNING:
        return Running(message="its flow process goes on")
    if mending.action is Action.SET_CANCELLED or mending.exit is None:
        return Cancelled(message=mending.exit.message if mending.exit is not None else None)
    if mending.exit.kind is ExitKind.OK:
        return Completed(message=mending.exit.message)
    if mending.exit.kind is ExitKind.CANCELLED:
        return Cancelled(message=mending.exit.message)
    return Failed(message=mending.exit.message)
