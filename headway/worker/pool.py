"""What the worker reads from Prefect of its work pool and its runs, and what it writes there."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.request import getproxies
from uuid import UUID

import anyio
import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State, StateType, WorkQueue
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.logging import get_logger
from prefect.states import Failed

from headway.clock import SystemClock
from headway.model.prefect_view import RETRIED, PrefectView
from headway.prefect.client import DEPLOYMENTS, FLOW, QUEUE_OF_NODE
from headway.prefect.unreadable import REFUSED
from headway.scheduler.limits import Gates
from headway.scheduler.reconciler import PrefectRun
from headway.worker.flow_runs import FlowRunReader
from headway.worker.states import granted, view_of

log = get_logger("worker.gpu-node")

PAGE = 200
SHORT_PAGE = 10
"""Enough for what is new since a moment ago."""
_SCHEDULED = {"state": {"type": {"any_": [StateType.SCHEDULED]}}}
_CONNECT_S = 2.0
_PORTS = {"https": 443}
_LOOK_AGAIN_S = (1.0, 2.0)
"""A run is refused only if the server fails to send it each of these times, too."""


class PrefectPool:
    """One work pool of Prefect, as its worker on this node sees it.

    Attributes:
        passing: Held during a pass over the queue, and by whoever must not come in between.
        queues: Names of the pool's work queues, as they were last read.
    """

    def __init__(self, client: PrefectClient, name: str) -> None:
        """The pool called *name*, through Prefect's own *client*."""
        self._client = client
        self._reader = FlowRunReader(client)
        self._name = name
        self._flow_names: dict[UUID, str] = {}
        self.passing = asyncio.Lock()
        self.queues: frozenset[str] = frozenset()

    async def is_reachable(self) -> bool:
        """Whether anybody listens at the server's address.

        Prefect's client asks a server that is away again and again, for half a minute.
        """
        if getproxies():  # only the proxy can tell
            return True
        url = self._client.api_url
        try:
            with anyio.fail_after(_CONNECT_S):
                port = url.port or _PORTS.get(url.scheme, 80)
                await (await anyio.connect_tcp(url.host, port)).aclose()
        except (OSError, TimeoutError):
            return False
        return True

    async def new_runs(
        self,
        known: Collection[str],
        due: datetime,
        *,
        first_page: int = PAGE,
    ) -> list[FlowRun]:
        """Runs to be started before *due* that are not *known*.

        Prefect's own question returns the oldest of the queue, again and again. So the
        newest are asked for, until all of a page is known.

        Args:
            known: Runs that need no new offer.
            due: They are to start before.
            first_page: Size of the first page: what the server sends of a long queue
                takes it as long as to start a run.
        """
        found: list[FlowRun] = []
        unreadable: set[str] = set()
        wanted = {**_SCHEDULED, "next_scheduled_start_time": {"before_": due}}
        limit = first_page
        while True:
            seen = len(found) + len(unreadable)
            page = await self._reader.page(wanted, pool=self._name, limit=limit, offset=seen)
            found += page.runs
            unreadable |= page.unreadable.keys()
            all_known = page.runs and all(str(run.id) in known for run in page.runs)
            if len(page) < limit or all_known:
                break
            limit = PAGE
        await self._refuse(unreadable)
        return list({str(run.id): run for run in found if str(run.id) not in known}.values())

    async def scheduled(self, run_ids: Collection[str]) -> dict[str, FlowRun]:
        """Those of *run_ids* that Prefect would let a worker start now, by id."""
        if not run_ids:
            return {}
        page = await self._reader.these(run_ids, **_SCHEDULED)
        await self._refuse(set(page.unreadable))
        return {str(run.id): run for run in page.runs}

    async def _refuse(self, run_ids: set[str]) -> None:
        """End runs that wait and that the server cannot send: no flow process could read them.

        Their parameters go, too: Prefect's own pages fail with every list that has one of them.
        """
        for pause_s in _LOOK_AGAIN_S if run_ids else ():
            await asyncio.sleep(pause_s)
            run_ids = set((await self._reader.these(run_ids, **_SCHEDULED)).unreadable)
        for run_id in run_ids:
            log.warning("run %s was refused: %s", run_id, REFUSED)
            await self.write_state(UUID(run_id), Failed(message=REFUSED))
            with suppress(httpx.HTTPStatusError, ObjectNotFound):
                await self._client.update_flow_run(UUID(run_id), parameters={})

    async def make_run(
        self,
        parameters: dict[str, Any],
        *,
        flow: str = FLOW,
        name: str,
        tags: Sequence[str],
        key: str,
        queue: str,
    ) -> str:
        """Make a run of *flow*, `train` or `rank`, in this pool; one *key* gives one run. Its id.

        Raises:
            ObjectNotFound: The flow is not registered for this pool.
        """
        made = await self._client.create_flow_run_from_deployment(
            await self._deployment(flow),
            parameters=parameters,
            name=name,
            tags=tags,
            idempotency_key=key,
            work_queue_name=queue,
        )
        return str(made.id)

    async def _deployment(self, flow: str) -> UUID:
        """That of *flow* in this pool; see `PrefectServer.offer_in`."""
        default = await self._client.read_deployment_by_name(DEPLOYMENTS[flow])
        if default.work_pool_name != self._name:
            default = await self._client.read_deployment_by_name(f"{flow}/{self._name}")
        return default.id

    async def flow_names(self, runs: Iterable[FlowRun]) -> dict[UUID, str]:
        """Names of the flows of *runs* by the flow's id; a flow that was deleted has none."""
        for flow_id in {run.flow_id for run in runs} - self._flow_names.keys():
            with suppress(ObjectNotFound):
                self._flow_names[flow_id] = (await self._client.read_flow(flow_id)).name
        return self._flow_names

    async def views(self, run_ids: Sequence[str]) -> dict[str, PrefectRun]:
        """What Prefect says of at most `PAGE` runs; one that is missing then was deleted."""
        page, now = await self._reader.these(run_ids), SystemClock().now()
        found = {str(run.id): _view(run, now) for run in page.runs}
        unreadable = page.unreadable.items()
        return found | {run_id: PrefectRun(PrefectView.of(said)) for run_id, said in unreadable}

    async def note_granted(self, run_id: str) -> None:
        """Make Scheduled Pending; nothing of a run that has moved on, to Failed for example."""
        try:
            seen = (await self._client.read_flow_run(UUID(run_id))).state
            if seen is not None and seen.is_scheduled():
                await self._client.set_flow_run_state(UUID(run_id), granted())
        except (httpx.HTTPError, ObjectNotFound) as error:
            log.warning("run %s is not Pending in Prefect: %s", run_id, error)

    async def write_state(self, run_id: UUID, state: State[Any]) -> None:
        """Write a state, whatever the run's state is now; what Prefect refuses is logged."""
        try:
            await self._client.set_flow_run_state(run_id, state, force=True)
        except (httpx.HTTPError, ObjectNotFound) as error:
            log.warning("state of run %s not written: %s", run_id, error)

    async def rename(self, run_id: str, name: str) -> None:
        """Call a run *name*; nothing if somebody has deleted it."""
        with suppress(ObjectNotFound):
            await self._client.update_flow_run(UUID(run_id), name=name)

    async def remove(self, run_id: UUID) -> None:
        """Remove a run with its tasks and logs; nothing if somebody has."""
        with suppress(ObjectNotFound):
            await self._client.delete_flow_run(run_id)

    async def write_over(self, seen_id: str, run_id: UUID, state: State[Any]) -> bool:
        """Write a state over the one with the id *seen_id*; False where there is another by now.

        Prefect accepts any state over any other (measured), SCHEDULED over RUNNING
        too: what a user or another worker has set meanwhile must not be lost.
        """
        if seen_id:  # the server cannot send every run
            try:
                now = await self._client.read_flow_run(run_id)
            except ObjectNotFound:
                return False
            if now.state is None or str(now.state.id) != seen_id:
                return False
        await self.write_state(run_id, state)
        return True

    async def block(self, slug: str, document: str) -> dict[str, Any] | None:
        """What the operator set in a block; None when there is none."""
        try:
            return (await self._client.read_block_document_by_name(document, slug)).data
        except ObjectNotFound:
            return None

    async def blocks(self, slug: str) -> dict[str, dict[str, Any]]:
        """What the operator set in each block of a type, by the block's name."""
        found: dict[str, dict[str, Any]] = {}
        while True:
            try:
                page = await self._client.read_block_documents_by_type(
                    slug, offset=len(found), limit=PAGE
                )
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.NOT_FOUND:
                    raise
                return found  # its type is not registered yet
            found |= {block.name: block.data for block in page if block.name}
            if len(page) < PAGE:
                return found

    async def have_queues(self, nodes: Collection[str]) -> list[WorkQueue]:
        """Make those of the *nodes* that are missing; all queues of the pool."""
        queues = await self._client.read_work_queues(work_pool_name=self._name)
        for node in sorted(set(nodes) - {queue.name for queue in queues}):
            with suppress(ObjectAlreadyExists):
                about, pool = QUEUE_OF_NODE % node, self._name
                made = await self._client.create_work_queue(node, about, work_pool_name=pool)
                queues.append(made)
        return queues

    async def gates(self, nodes: Collection[str]) -> Gates:
        """What the operator set on the pool and its queues.

        Each of the *nodes* has a queue of its name: what is handed to it runs there and
        nowhere else. One that is missing is made. In Prefect 1 is the
        most urgent. A node's own queue is as urgent as the default one.
        """
        pool = await self._client.read_work_pool(self._name)
        queues = await self.have_queues(nodes)
        self.queues = frozenset(queue.name for queue in queues)
        default = min((q.priority or 1 for q in queues if q.name == "default"), default=1)
        return Gates(
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


def _view(run: FlowRun, now: datetime) -> PrefectRun:
    state = run.state
    if state is None:
        return PrefectRun(PrefectView.UNKNOWN)
    retried_at = state.timestamp if state.name == RETRIED else None
    return PrefectRun(view_of(state, now), state.message or "", str(state.id), retried_at)
