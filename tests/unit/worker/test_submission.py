"""From the claim of a run to its flow process: whatever fails there, the claim is given back."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import anyio
import httpx
import pytest
from prefect.client.schemas.objects import FlowRun, WorkPool
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.exceptions import Abort, PrefectHTTPStatusError
from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings
from prefect.states import Pending
from prefect.workers import base as prefect_base

from headway.errors import LedgerUnreachable
from headway.testing.clock import FakeClock
from headway.worker import gpu_node
from headway.worker.claims import Claims
from headway.worker.gpu_node import GpuNodeWorker

_REQUEST = httpx.Request("POST", "http://site/api")


def unavailable() -> Exception:
    """What Prefect's client raises for a server that answers 503."""
    answer = httpx.Response(503, request=_REQUEST)
    return PrefectHTTPStatusError("503", request=_REQUEST, response=answer)


class Node:
    """A worker without a site, whose Prefect and whose processes do as they are told."""

    def __init__(self, limit: int | None = None) -> None:
        self.given_back: list[str] = []
        self.noted: list[str] = []
        self.begun: list[str] = []
        self.crashed: list[UUID] = []
        self.to_start: list[FlowRun] = []
        self.trouble: dict[str, Callable[[], Exception]] = {}
        self.status = 0
        worker: Any = GpuNodeWorker(work_pool_name="p", limit=limit)
        worker._claims = Claims(self.given_back.append, FakeClock())
        worker._client = object()  # it is asked nothing but the claim
        worker._command = ["none"]
        worker._note_start = self._note_start
        self.ended: set[str] = set()
        worker._has_ended = self.ended.__contains__
        worker._mended = worker._house_kept = worker._has_successfully_synced = True
        worker._housework, worker._wake = asyncio.Event(), asyncio.Event()
        worker._ended = asyncio.Event()
        worker._news = asyncio.Event()
        worker._work_pool = WorkPool(
            id=uuid4(), name="p", type="gpu-node", default_queue_id=uuid4()
        )
        worker._limiter = anyio.CapacityLimiter(limit) if limit is not None else None
        worker._pool = SimpleNamespace(
            passing=asyncio.Lock(),
            flow_names=self._flow_names,
            claim_undeployed=self._claim_undeployed,
        )
        self.undeployed: set[UUID] = set()
        worker._get_scheduled_flow_runs = self._scheduled
        self.worker = worker

    async def propose(self, _: Any, state: Any, flow_run_id: UUID) -> Any:
        """Prefect's answer to a state that the worker proposes."""
        self._raise(state.name)
        if state.name == "Crashed":
            self.crashed.append(flow_run_id)
        return state

    async def start(self, _: Any, env: dict[str, str]) -> Any:
        """A process that ends at once."""
        self._raise("start")
        self.begun.append(env["PREFECT__FLOW_RUN_ID"])

        async def wait() -> int:
            return self.status

        return SimpleNamespace(pid=1, wait=wait)

    def _note_start(self, run_id: str) -> None:
        self._raise("note")
        self.noted.append(run_id)

    async def _flow_names(self, runs: list[FlowRun]) -> dict[UUID, str]:
        self._raise("names")
        return {run.flow_id: run.name for run in runs}

    async def _claim_undeployed(self, run: FlowRun) -> bool:
        return run.id in self.undeployed

    async def _scheduled(self) -> list[WorkerFlowRunResponse]:
        self.worker._claims.add(run.id for run in self.to_start)
        self._raise("after the grant")
        return [self.worker._entry(run) for run in self.to_start]

    def _raise(self, what: str) -> None:
        if trouble := self.trouble.get(what):
            raise trouble()

    def passes(self, *runs: FlowRun) -> None:
        """One pass that grants *runs*, and all that follows from it."""

        async def go() -> None:
            async with anyio.create_task_group() as tasks:
                self.worker._runs_task_group = tasks
                await self.worker._pass()

        self.to_start = list(runs)
        asyncio.run(go())

    @property
    def claimed(self) -> frozenset[UUID]:
        """What the janitor is told not to touch."""
        claimed: frozenset[UUID] = self.worker._claimed()
        return claimed


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Node]]:
    """Makes a node."""

    def made(limit: int | None = None) -> Node:
        node = Node(limit)
        monkeypatch.setattr(prefect_base, "propose_state", node.propose)
        monkeypatch.setattr(gpu_node, "start", node.start)
        return node

    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield made


def not_found() -> Exception:
    return Abort("Deployment not found.")


def run_of(flow: str = "train") -> FlowRun:
    """A run as the worker finds it; here it is called as its flow is."""
    return FlowRun(id=uuid4(), flow_id=uuid4(), name=flow, state=Pending())


def test_a_run_that_starts_keeps_its_claim_until_its_process_ends(make) -> None:
    node, run = make(), run_of()
    node.passes(run)
    assert node.begun == node.noted == [str(run.id)]
    assert node.given_back == node.crashed == []
    assert node.claimed == frozenset()
    assert node.worker._housework.is_set()


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("names", unavailable),
        ("names", lambda: httpx.ConnectError("refused")),
        ("note", lambda: LedgerUnreachable("postgresql://site", "refused")),
        ("start", lambda: OSError("no processes left")),
        ("start", lambda: ExceptionGroup("of Prefect", [OSError("no files left")])),
    ],
)
def test_what_fails_before_the_process_gives_the_claim_back(make, where, error) -> None:
    node, run = make(), run_of()
    node.trouble[where] = error
    node.passes(run)
    assert node.begun == []
    assert node.given_back == [str(run.id)]
    assert node.crashed == [run.id]  # Prefect had it pending
    assert node.claimed == frozenset()


@pytest.mark.parametrize("error", [lambda: Abort("not now"), unavailable])
def test_a_run_that_prefect_does_not_give_is_given_back(make, error) -> None:
    node, run = make(), run_of()
    node.trouble["Pending"] = error
    node.passes(run)
    assert node.given_back == [str(run.id)]
    assert node.crashed == []
    assert node.claimed == frozenset()


def test_a_flow_of_somebody_else_is_not_started(make) -> None:
    node, run = make(), run_of("evil")
    node.passes(run)
    assert node.begun == []
    assert node.crashed == [run.id]


def test_an_error_of_prefect_stops_no_other_run(make) -> None:
    node, first, second = make(), run_of(), run_of()
    node.trouble = {"names": unavailable, "Crashed": unavailable}
    node.passes(first)
    node.trouble = {}
    node.passes(second)
    assert node.given_back == [str(first.id)]
    assert node.begun == [str(second.id)]


def test_a_start_that_hangs_is_given_up_with_its_claim(make, monkeypatch) -> None:
    node, run = make(), run_of()
    monkeypatch.setattr(gpu_node, "CLAIM_LIMIT_S", 0.01)
    monkeypatch.setattr(gpu_node, "start", lambda *_: anyio.sleep_forever())
    node.passes(run)
    assert node.given_back == [str(run.id)]
    assert node.crashed == [run.id]
    assert node.claimed == frozenset()


def test_an_error_between_grant_and_submission_gives_all_back(make) -> None:
    node, runs = make(), [run_of(), run_of()]
    node.trouble["after the grant"] = unavailable
    with pytest.raises(BaseExceptionGroup):  # the loop of the pass logs it
        node.passes(*runs)
    assert sorted(node.given_back) == sorted(str(run.id) for run in runs)
    assert node.claimed == frozenset()


@pytest.mark.parametrize("where", ["Pending", "names"])
def test_what_a_limit_leaves_is_given_back_and_its_slots_come_back(make, where) -> None:
    node, runs = make(limit=1), [run_of(), run_of()]
    node.trouble[where] = unavailable
    node.passes(*runs)
    assert sorted(node.given_back) == sorted(str(run.id) for run in runs)
    assert node.claimed == frozenset()
    assert node.worker.limiter.available_tokens == 1


def test_a_process_that_breaks_is_told_to_prefect_and_one_that_is_not_needed_is_not(make) -> None:
    node, broken, second = make(), run_of(), run_of()
    node.status = 1
    node.passes(broken)
    node.status = gpu_node.FENCED
    node.passes(second)
    assert node.crashed == [broken.id]
    assert node.given_back == []


def test_a_process_that_is_killed_after_the_end_of_its_run_is_no_crash(make) -> None:
    node, over = make(), run_of()
    node.status = -15
    node.ended.add(str(over.id))
    node.passes(over)
    assert node.crashed == []


def test_a_ledger_that_is_away_leaves_the_claim_to_its_deadline() -> None:
    def away(_: str) -> None:
        raise LedgerUnreachable("postgresql://site", "refused")

    claims, run_id = Claims(away, FakeClock()), uuid4()
    claims.add([run_id])
    asyncio.run(claims.give_back([run_id]))
    assert claims.held == frozenset()


def test_a_run_whose_deployment_was_deleted_starts_and_another_refusal_lets_it_rest(make) -> None:
    node, run, refused = make(), run_of(), run_of()
    node.trouble["Pending"] = not_found
    node.undeployed.add(run.id)
    node.passes(run, refused)
    assert node.begun == [str(run.id)]
    assert node.given_back == [str(refused.id)]
    assert node.worker._claims.resting == {refused.id}
