"""What Prefect is asked in a round of the reconciler, and what of it is written there."""

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import httpx
import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from headway.leader import agreement
from headway.leader.agreement import agree_with_prefect
from headway.model.prefect_view import PrefectView
from headway.model.run import RunState
from headway.policy.agree import Change
from headway.scheduler.reconciler import Mending, PrefectRun
from headway.worker import pool as pool_module
from headway.worker.pool import PrefectPool
from tests.ports.clock import FakeClock

RUN = str(UUID(int=1))
PATIENCE_S = 60.0


class Prefect:
    """Prefect's client with one run."""

    def __init__(self) -> None:
        self.state = State[Any](type=StateType.PENDING)
        self.away = False
        self.written: list[str] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.api_url = httpx.URL(f"http://127.0.0.1:{self.socket.getsockname()[1]}/api")

    async def read_flow_runs(self, flow_run_filter: Any) -> list[FlowRun]:
        if self.socket.fileno() < 0:
            await asyncio.sleep(3600)  # as Prefect's client does, which asks again and again
        if self.away or UUID(RUN) not in flow_run_filter.id.any_:
            raise httpx.ConnectError("away")
        return [FlowRun(id=UUID(RUN), flow_id=UUID(int=2), state=self.state)]

    async def read_flow_run(self, run_id: UUID) -> FlowRun:
        assert str(run_id) == RUN
        return FlowRun(id=run_id, flow_id=UUID(int=2), state=self.state)

    async def set_flow_run_state(self, run_id: UUID, state: State[Any], *, force: bool) -> None:
        assert (str(run_id), force) == (RUN, True)
        self.written.append(str(state.name))


class OneRun:
    """Site, ledger and reconciler in one: a run, and what would be done about it."""

    def __init__(self) -> None:
        self.prefect = Prefect()
        self.clock = FakeClock()
        self.run = self.record(attempt=1)
        self.ledger = SimpleNamespace(runs=SimpleNamespace(get=lambda _: self.run))
        self.others: list[Any] = []
        self.seen: list[PrefectView] = []
        self.meanwhile = lambda: None
        self.unknown: set[str] = set()

    def record(self, **now: Any) -> Any:
        standing = {"state": "waiting", "attempt": 1, "node": None, "suspended_at": None}
        return SimpleNamespace(
            run_id=RUN, exit=None, ended_at=None, told_end_at=None, reason="", **standing | now
        )

    def unsettled(self, called: Any, *, whole: bool) -> list[Any]:
        assert whole
        return [self.run, *self.others]

    def round(self, runs: list[Any], prefect: Any) -> list[Mending]:
        said: PrefectRun = prefect[RUN]
        self.unknown = {key for key, each in prefect.items() if each.view is PrefectView.UNKNOWN}
        self.seen.append(said.view)
        done = [Mending(self.run, Change.RESCHEDULE, said)]
        self.meanwhile()
        return done

    def mend(self) -> list[str]:
        """The states that are written in one round."""
        client, site = cast("Any", self.prefect), cast("Any", self)

        async def once() -> None:
            pool = PrefectPool(client, "gpu")
            await agree_with_prefect(site, site, pool, (), whole=True)

        asyncio.run(asyncio.wait_for(once(), PATIENCE_S))
        return self.prefect.written


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneRun]:
    monkeypatch.setattr(pool_module, "getproxies", dict)
    made = OneRun()
    yield made
    made.prefect.socket.close()


def test_what_the_reconciler_leaves_is_written(one: OneRun) -> None:
    assert one.mend() == ["AwaitingHeadroom"]


def test_a_run_that_is_granted_meanwhile_is_not_put_back(one: OneRun) -> None:
    """It was read as waiting; Prefect says active, since it has just begun."""

    def claim() -> None:
        one.run = one.record(state="claimed", node="there")

    one.meanwhile = claim
    assert one.mend() == []


def test_what_a_user_has_set_meanwhile_is_not_lost(one: OneRun) -> None:
    def cancel() -> None:
        one.prefect.state = State[Any](type=StateType.CANCELLING)

    one.meanwhile = cancel
    assert one.mend() == []


def test_a_prefect_that_is_away_keeps_nobody_from_a_round(one: OneRun) -> None:
    one.prefect.away = True
    one.mend()
    assert one.seen == [PrefectView.UNKNOWN]


def test_nobody_waits_for_a_prefect_that_is_not_there(
    one: OneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who cancels in an outage would wait as long as a round does."""
    monkeypatch.setattr(agreement, "_ANSWER_S", 10 * PATIENCE_S)
    one.prefect.socket.close()
    one.mend()
    assert one.seen == [PrefectView.UNKNOWN]


def test_what_prefect_said_counts_though_the_rest_did_not_come(one: OneRun) -> None:
    one.others = [
        SimpleNamespace(run_id=str(UUID(int=at)), state=RunState.WAITING) for at in range(2, 250)
    ]
    assert one.mend() == ["AwaitingHeadroom"]
    assert one.seen == [PrefectView.ACTIVE]
    assert one.unknown == {str(UUID(int=at)) for at in range(201, 250)}
