"""What the worker makes of runs that Prefect's server stores but cannot send."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect.client.schemas.objects import State, StateType

from headway.model.prefect_view import PrefectView
from headway.prefect.unreadable import REFUSED
from headway.worker import pool as pool_module
from headway.worker.pool import PrefectPool

GOOD, BAD, LAST = (str(UUID(int=at)) for at in (1, 2, 3))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def failure(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://nowhere")
    return httpx.HTTPStatusError("", request=request, response=httpx.Response(code))


class Prefect:
    """Prefect's client with three runs that wait, one of which its server cannot send."""

    def __init__(self) -> None:
        self.states = dict.fromkeys((GOOD, BAD, LAST), "SCHEDULED")
        self.fails: Callable[[], int | None] = lambda: 500
        """The code with which a page of the bad run fails; None where it is sent."""
        self.parameters: dict[str, Any] = {}
        self.messages: dict[str, str] = {}

    async def read_flow_runs(self, flow_run_filter: Any, **_: Any) -> list[Any]:
        found = self._wanted(flow_run_filter.model_dump(mode="json", exclude_unset=True))
        if BAD in found and BAD not in self.parameters and (code := self.fails()):
            raise failure(code)
        return [SimpleNamespace(id=UUID(each), state=self._state(each)) for each in found]

    def _state(self, run_id: str) -> State[Any]:
        return State(type=StateType(self.states[run_id]))

    def _wanted(self, asked: Any) -> list[str]:
        ids = asked.get("id", {}).get("any_") or list(self.states)
        types = asked.get("state", {}).get("type", {}).get("any_") or [*self.states.values()]
        return [each for each in ids if self.states.get(each) in types]

    async def request(self, _method: str, path: str, json: Any) -> Any:
        assert path == "/ui/flow_runs/history"
        rows = [
            {"id": each, "state_type": self.states[each]}
            for each in self._wanted(json["flow_runs"])
        ]
        return SimpleNamespace(json=lambda: rows)

    async def set_flow_run_state(self, run_id: UUID, state: Any, *, force: bool) -> None:
        assert force
        self.states[str(run_id)], self.messages[str(run_id)] = str(state.type.value), state.message

    async def update_flow_run(self, run_id: UUID, *, parameters: Any) -> None:
        self.parameters[str(run_id)] = parameters


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> Prefect:
    monkeypatch.setattr(pool_module, "_LOOK_AGAIN_S", (0.0, 0.0))
    return Prefect()


def pool_of(prefect: Any) -> PrefectPool:
    return PrefectPool(prefect, "gpu")


def new(prefect: Prefect) -> list[str]:
    return [str(run.id) for run in asyncio.run(pool_of(prefect).new_runs((), NOON))]


def test_a_run_that_cannot_be_sent_is_refused_and_the_others_are_taken(prefect: Prefect) -> None:
    assert new(prefect) == [GOOD, LAST]
    assert prefect.states == {GOOD: "SCHEDULED", BAD: "FAILED", LAST: "SCHEDULED"}
    assert prefect.messages == {BAD: REFUSED}
    assert prefect.parameters == {BAD: {}}  # now every list of Prefect's own page works again


def test_a_server_that_fails_for_a_moment_ends_no_run(prefect: Prefect) -> None:
    answers = iter([500] * 4)  # the page, the same by ids, its second half, that run alone
    prefect.fails = lambda: next(answers, None)
    assert new(prefect) == [GOOD, LAST]  # the third run comes with the next pass
    assert set(prefect.states.values()) == {"SCHEDULED"}
    assert new(prefect) == [GOOD, BAD, LAST]


def test_a_server_that_is_busy_is_no_run_s_fault(prefect: Prefect) -> None:
    prefect.fails = lambda: 503
    with pytest.raises(httpx.HTTPStatusError):
        new(prefect)
    assert set(prefect.states.values()) == {"SCHEDULED"}


def test_the_janitor_is_told_of_a_run_that_cannot_be_sent_by_its_state_alone(
    prefect: Prefect,
) -> None:
    prefect.states[BAD] = "CANCELLING"
    views = asyncio.run(pool_of(prefect).views([GOOD, BAD, LAST, str(UUID(int=9))]))
    assert {run_id: each.view for run_id, each in views.items()} == {
        GOOD: PrefectView.SCHEDULED,
        BAD: PrefectView.CANCELLING,
        LAST: PrefectView.SCHEDULED,
    }
    assert prefect.messages == prefect.parameters == {}  # it is not for the janitor to end it


class LongQueue:
    """Prefect's client with many runs that wait, the newest first."""

    def __init__(self, runs: int) -> None:
        self.runs = [SimpleNamespace(id=UUID(int=at)) for at in range(runs, 0, -1)]
        self.sent = 0

    async def read_flow_runs(self, *, limit: int, offset: int, **_: Any) -> list[Any]:
        page = self.runs[offset : offset + limit]
        self.sent += len(page)
        return page


@pytest.mark.parametrize(("unknown", "sent"), [(0, 10), (3, 210), (10, 210), (500, 500)])
def test_of_a_long_queue_the_server_sends_little_more_than_what_is_new(unknown, sent) -> None:
    prefect = LongQueue(500)
    known = [str(run.id) for run in prefect.runs[unknown:]]
    found = asyncio.run(pool_of(prefect).new_runs(known, NOON, first_page=10))
    assert [run.id for run in found] == [run.id for run in prefect.runs[:unknown]]
    assert prefect.sent == sent
