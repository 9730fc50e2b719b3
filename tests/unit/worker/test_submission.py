"""From a grant to a flow process: whatever fails there, the lease is given back."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from headway.errors import LedgerUnreachable
from headway.node.forkstart import Forked, Program
from headway.node.janitor import Done
from headway.policy.reconcile import Action
from headway.worker import gpu_node
from headway.worker.gpu_node import GpuNodeWorker
from headway.worker.starts import Starts
from tests.ports.clock import FakeClock

RUN, OTHER = "run", "other"


class Node:
    """A worker whose ledger, Prefect and processes do as they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.granted: list[str] = []
        self.orphaned: list[Any] = []
        """Runs that the janitor says have no flow process any more."""
        self.untaken: set[str] = set()
        self.begun: dict[str, str] = {}
        self.stopped: list[str] = []
        self.given_back: list[str] = []
        self.trouble: dict[str, Callable[[], Exception]] = {}
        self.reachable = True
        self.status = 0
        worker: Any = GpuNodeWorker(work_pool_name="p")
        worker._site = SimpleNamespace(settings=SimpleNamespace(state_dir="/state"))
        self.clock = FakeClock()
        worker._starts = Starts(self.clock)
        worker._flows, worker._mended, worker._house_kept = {}, True, True
        worker._housework, worker._news = asyncio.Event(), asyncio.Event()
        worker._called, worker._wake = set(), asyncio.Event()
        worker._janitor = SimpleNamespace(
            stop_container=self.stopped.append, unsettled=list,
            round=lambda *_: [Done(run, Action.START_FLOW) for run in self.orphaned],
        )  # fmt: skip
        worker._grants = SimpleNamespace(
            to_stop=list, to_start=lambda: self.granted, give_back=self._give_back
        )
        worker._note_start = lambda _: self._raise("note")
        worker._pool = SimpleNamespace(is_reachable=self._reachable)
        monkeypatch.setattr(gpu_node, "fork", self._fork)
        monkeypatch.setattr(gpu_node, "status_of", lambda *_: self.status)
        self.worker = worker

    def _fork(self, _: Any, program: Program) -> Forked:
        self._raise("fork")
        run_id = program.env["PREFECT__FLOW_RUN_ID"]
        self.begun[run_id] = program.env["PREFECT__FLOW_ENTRYPOINT"]
        return Forked(1, os.eventfd(1))  # readable: it ends at once

    def _give_back(self, run_id: str) -> bool:
        self._raise("give back")
        if run_id in self.untaken:
            self.given_back.append(run_id)
        return run_id in self.untaken

    async def _reachable(self) -> bool:
        return self.reachable

    def _raise(self, what: str) -> None:
        if trouble := self.trouble.get(what):
            raise trouble()

    def takes_up(self) -> None:
        """One look at what is granted, and all that follows from it."""
        self._does(self.worker._take_up)

    def mends(self) -> None:
        """One round of the janitor, and all that follows from it."""
        self._does(self.worker._mend)

    def _does(self, task: Callable[[], Awaitable[None]]) -> None:
        async def go() -> None:
            async with anyio.create_task_group() as tasks:
                self.worker._runs_task_group = tasks
                await task()

        asyncio.run(go())


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def test_what_is_granted_starts_and_the_scheduler_is_told_of_its_end(node: Node) -> None:
    node.granted = [RUN]
    node.takes_up()
    assert node.begun == {RUN: "flows.train:train"}
    assert node.given_back == []
    assert node.worker._starts.held == node.worker._starts.resting == frozenset()
    assert node.worker._news.is_set()
    assert node.worker._housework.is_set()


def test_what_the_scheduler_calls_for_starts_if_it_is_of_this_installation(node: Node) -> None:
    node.worker._flows = {"a": "rank", "b": "somebody's"}
    node.takes_up()
    assert node.begun == {"a": "flows.rank:rank"}
    assert node.worker._flows == {}


def test_what_lost_its_flow_process_is_given_another_one_and_then_rests(node: Node) -> None:
    """Where each breaks at once, as with half a Prefect server, too many would end the run."""
    node.orphaned = [SimpleNamespace(run_id=RUN, gang_id=None)]
    node.orphaned += [SimpleNamespace(run_id=OTHER, gang_id="gang")]
    node.mends()
    assert node.begun == {RUN: "flows.train:train", OTHER: "flows.rank:rank"}
    node.begun.clear()
    node.mends()
    assert node.begun == {}
    node.clock.sleep(2.0)
    node.mends()
    assert node.begun.keys() == {RUN, OTHER}


def test_nothing_starts_while_prefect_is_away(node: Node) -> None:
    """Each flow process would ask it in vain, and too many of them end a run."""
    node.granted, node.reachable = [RUN], False
    node.orphaned = [SimpleNamespace(run_id=OTHER, gang_id=None)]
    node.takes_up()
    node.mends()
    assert node.begun == {}


@pytest.mark.parametrize("where", ["note", "fork"])
def test_what_fails_before_the_process_gives_the_lease_back_and_the_run_rests(
    node: Node, where: str
) -> None:
    node.granted = [RUN, OTHER]
    node.untaken = {RUN, OTHER}
    node.trouble[where] = lambda: LedgerUnreachable("postgresql://site", "refused")
    node.takes_up()
    assert node.begun == {}
    assert sorted(node.given_back) == sorted(node.worker._starts.resting) == [OTHER, RUN]
    node.trouble.clear()
    node.takes_up()
    assert node.begun == {}  # it rests


def test_a_process_that_ends_without_having_taken_up_its_lease_lets_the_run_rest(
    node: Node,
) -> None:
    node.granted, node.untaken, node.status = [RUN], {RUN}, 1
    node.takes_up()
    assert list(node.begun) == node.given_back == [RUN]
    assert node.worker._starts.resting == {RUN}


def test_a_ledger_that_is_away_leaves_the_lease_to_its_deadline(node: Node) -> None:
    node.granted = [RUN]
    node.trouble["give back"] = lambda: LedgerUnreachable("postgresql://site", "refused")
    node.takes_up()
    assert node.worker._starts.held == frozenset()


def test_a_limit_says_how_many_more_may_start(node: Node) -> None:
    assert node.worker._slots is None
    node.worker._limit = 2
    node.worker._starts.begin(RUN)
    assert node.worker._slots == 1
