"""Between the claim of a run and its flow process: whatever fails there, the claim is given back.

Prefect's own `_submit_run` runs here, with a client that answers as a server in trouble does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import anyio
import httpx
import pytest
from prefect.client.schemas.objects import Flow, FlowRun, WorkPool
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.exceptions import Abort, ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings
from prefect.states import Pending
from prefect.workers import base as prefect_base
from prefect.workers.process import ProcessWorkerResult

from headway.errors import LedgerUnreachable
from headway.worker.claims import Claims
from headway.worker.gpu_node import GpuNodeWorker

_REQUEST = httpx.Request("POST", "http://site/api")


def unavailable() -> Exception:
    """What Prefect's client raises for a server that answers 503."""
    answer = httpx.Response(503, request=_REQUEST)
    return PrefectHTTPStatusError("503", request=_REQUEST, response=answer)


def not_found() -> Exception:
    """The same for what was deleted."""
    return ObjectNotFound(unavailable())


class Client:
    """Prefect's client; what is in `trouble` raises."""

    def __init__(self, **trouble: Callable[[], Exception]) -> None:
        self._trouble = trouble

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def answer(*arguments: Any, **_: Any) -> Any:
            if trouble := self._trouble.get(name):
                raise trouble()
            return Flow(id=arguments[0], name="train", labels={}) if name == "read_flow" else None

        return answer


class Node:
    """A worker without a site: it starts no process, and remembers what it gave back."""

    def __init__(self, client: Any, limit: int | None = None) -> None:
        self.given_back: list[str] = []
        self.noted: list[str] = []
        self.to_start: list[FlowRun] = []
        worker: Any = GpuNodeWorker(work_pool_name="p", limit=limit)
        worker._claims = Claims(self.given_back.append)
        worker._client = client
        worker._command = "none"
        worker._note_start = self.noted.append
        worker._mended = worker._has_successfully_synced = True
        worker._housework, worker._wake = asyncio.Event(), asyncio.Event()
        worker._work_pool = WorkPool(
            id=uuid4(), name="p", type="gpu-node", default_queue_id=uuid4()
        )
        worker._limiter = anyio.CapacityLimiter(limit) if limit is not None else None
        worker._pool = SimpleNamespace(passing=asyncio.Lock())
        worker._get_scheduled_flow_runs = self._scheduled
        self.worker = worker

    async def _scheduled(self) -> list[WorkerFlowRunResponse]:
        self.worker._claims.add(run.id for run in self.to_start)
        return [self.worker._entry(run) for run in self.to_start]

    async def passes(self, *runs: FlowRun) -> None:
        """One pass that grants *runs*, and all that follows from it."""
        self.to_start = list(runs)
        async with anyio.create_task_group() as tasks:
            self.worker._runs_task_group = tasks
            await self.worker._pass()


@pytest.fixture
def trouble_with() -> dict[str, Exception]:
    """By the name of a state, what Prefect raises when it is proposed."""
    return {}


@pytest.fixture(autouse=True)
def ended(
    monkeypatch: pytest.MonkeyPatch, trouble_with: dict[str, Exception]
) -> Iterator[list[UUID]]:
    """Runs whose flow process has ended: each does at once. Prefect takes every state."""
    ended: list[UUID] = []

    async def propose(_: Any, state: Any, **__: Any) -> Any:
        if state.name in trouble_with:
            raise trouble_with[state.name]
        return state

    async def run(_: Any, flow_run: FlowRun, __: Any, task_status: Any) -> ProcessWorkerResult:
        task_status.started(1)
        ended.append(flow_run.id)
        return ProcessWorkerResult(status_code=0, identifier="1")

    monkeypatch.setattr(prefect_base, "propose_state", propose)
    monkeypatch.setattr("prefect.workers.process.ProcessWorker.run", run)
    monkeypatch.setattr(prefect_base, "emit_event", lambda *_, **__: None)
    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield ended


def run_of(deployment: UUID | None = None) -> FlowRun:
    """A run as the worker finds it."""
    return FlowRun(
        id=uuid4(), flow_id=uuid4(), deployment_id=deployment or uuid4(), state=Pending()
    )


def submitted(node: Node, *runs: FlowRun) -> None:
    """Let the worker of *node* make a pass that starts *runs*."""
    asyncio.run(node.passes(*runs))


def test_a_run_that_starts_keeps_its_claim_until_its_process_ends(ended) -> None:
    node, run = Node(Client()), run_of()
    submitted(node, run)
    assert ended == [run.id]
    assert node.noted == [str(run.id)]
    assert node.given_back == []
    assert node.worker._claimed() == frozenset()


@pytest.mark.parametrize(
    "trouble",
    [
        {"read_deployment": unavailable},
        {"read_deployment": not_found},
        {"read_deployment": not_found, "set_flow_run_state": unavailable},
        {"read_flow": unavailable},
        {"update_flow_run_labels": unavailable},
        {"update_flow_run_labels": lambda: httpx.ConnectError("refused")},
    ],
    ids=["503", "deleted", "deleted and 503", "no flow", "no labels", "connection refused"],
)
def test_what_fails_before_the_process_gives_the_claim_back(trouble, ended) -> None:
    node, run = Node(Client(**trouble)), run_of()
    submitted(node, run)
    assert ended == []
    assert node.given_back == [str(run.id)]
    assert node.worker._claimed() == frozenset()


@pytest.mark.parametrize("error", [Abort("not now"), unavailable()])
def test_a_run_that_prefect_does_not_give_is_given_back(trouble_with, error) -> None:
    node, run = Node(Client()), run_of()
    trouble_with["Pending"] = error
    submitted(node, run)
    assert node.given_back == [str(run.id)]
    assert node.worker._claimed() == frozenset()


def test_an_error_about_one_run_stops_no_other(ended) -> None:
    node, broken, well = Node(Client()), run_of(), run_of()
    known = node.worker._client.read_deployment

    async def read_deployment(deployment: UUID) -> Any:
        if deployment == broken.deployment_id:
            raise unavailable()
        return await known(deployment)

    node.worker._client = SimpleNamespace(
        read_deployment=read_deployment,
        read_flow=node.worker._client.read_flow,
        update_flow_run_labels=node.worker._client.update_flow_run_labels,
        update_flow_run=node.worker._client.update_flow_run,
    )
    submitted(node, broken, well)
    assert node.given_back == [str(broken.id)]
    assert ended == [well.id]


def test_what_a_limit_leaves_is_given_back_and_its_slots_come_back() -> None:
    node, runs = Node(Client(read_deployment=not_found), limit=1), [run_of(), run_of()]
    submitted(node, *runs)
    assert sorted(node.given_back) == sorted(str(run.id) for run in runs)
    assert node.worker._claimed() == frozenset()
    assert node.worker.limiter.available_tokens == 1


def test_a_cancellation_that_fails_does_not_end_the_worker() -> None:
    node = Node(Client(read_flow_run=unavailable))
    asyncio.run(node.worker._cancel_run(uuid4()))


def test_a_ledger_that_is_away_leaves_the_claim_to_its_deadline() -> None:
    def away(_: str) -> None:
        raise LedgerUnreachable("postgresql://site", "refused")

    claims, run_id = Claims(away), uuid4()
    claims.add([run_id])
    asyncio.run(claims.give_back([run_id]))
    assert claims.held == frozenset()
