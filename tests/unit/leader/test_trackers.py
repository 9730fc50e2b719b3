"""A tracker that does not answer is asked again, less and less often, and holds up no other."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest

from headway.leader import trackers
from headway.leader.mlflow import MlflowRefused
from headway.leader.trackers import Trackers
from headway.model.notice import Notice, NoticeKind
from headway.views.tracked_run import TrackedRun
from tests.ports.clock import FakeClock

AWAY, THERE = "headway-mlflow/away", "headway-mlflow/there"


class Notices:
    """Those of the ledger that no tracker has taken."""

    def __init__(self, *due: Notice) -> None:
        self.due, self.errors = list(due), dict[str | None, str]()

    def trackers(self, _pool: str) -> list[str]:
        return [each.block for each in self.due]

    def untracked(self, _pool: str, block: str, without: list[int]) -> list[Notice]:
        left = [n for n in self.due if n.block == block and n.notice_id not in without]
        return sorted(left, key=lambda each: each.run_id in self.errors)[:20]

    def tracked(self, notice: Notice, why: str = "") -> None:
        self.due.remove(notice)
        self.errors[notice.run_id] = why

    def not_sent(self, notice: Notice, why: str) -> None:
        self.errors[notice.run_id] = why


class Server:
    """What of each run was written where, and what comes of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *due: Notice) -> None:
        self.clock, self.notices = FakeClock(), Notices(*due)
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Exception] = {AWAY: httpx.ConnectError("nobody")}
        self.waits_for: dict[str, anyio.Event] = {}
        self.there_is_told = anyio.Event()
        site = SimpleNamespace(
            clock=self.clock, ledger=SimpleNamespace(notices=self.notices),
            settings=SimpleNamespace(pool="gpu"),
        )  # fmt: skip
        monkeypatch.setattr(trackers, "_write", self.write)
        monkeypatch.setattr(trackers, "_ended", lambda _site, run_id: run_id)
        self.trackers = Trackers(site)  # type: ignore[arg-type]

    async def write(self, block: str, run: TrackedRun) -> None:
        if block in self.waits_for:
            await self.waits_for[block].wait()
        self.asked.append((block, run))
        if block == THERE:
            self.there_is_told.set()
        for key in (block, str(run)):
            if key in self.answers:
                raise self.answers[key]

    def tell(self, after_s: float = 0.0) -> list[Any]:
        """The runs that are written after a while."""
        self.clock.sleep(after_s)
        self.asked.clear()
        anyio.run(self.trackers.tell)
        return [run for _, run in self.asked]


def notice(number: int, block: str) -> Notice:
    made_at = FakeClock().now()
    return Notice(number, f"r{number}", None, NoticeKind.ENDED, block, made_at, None, "")


def test_it_is_left_alone_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, notice(1, AWAY), notice(2, AWAY), notice(3, THERE))
    assert sorted(server.tell()) == ["r1", "r3"]
    assert server.notices.errors == {"r1": "ConnectError: nobody", "r3": ""}
    assert server.tell(9.0) == []
    assert server.tell(1.1) == ["r2"]
    assert server.tell(19.0) == []
    assert server.tell(1.1) == ["r1"]
    del server.answers[AWAY]
    assert sorted(server.tell(41.0)) == ["r1", "r2"]
    assert server.notices.due == []


def test_what_it_never_takes_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, notice(1, AWAY), notice(2, AWAY))
    server.answers[AWAY] = MlflowRefused("400: a tag")
    assert server.tell() == ["r1", "r2"]
    assert server.notices.errors == {"r1": "400: a tag", "r2": "400: a tag"}
    assert server.notices.due == []


def test_after_three_days_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    old = replace(notice(1, AWAY), made_at=FakeClock().now() - timedelta(days=4))
    server = Server(monkeypatch, old)
    assert server.tell() == ["r1"]
    assert server.notices.due == []
    assert server.notices.errors == {"r1": "ConnectError: nobody"}


def _answered(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://m")
    return httpx.HTTPStatusError(
        f"{status} no", request=request, response=httpx.Response(status, request=request)
    )


def test_a_slow_one_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, *(notice(at, AWAY) for at in range(30)), notice(30, THERE))
    server.answers.clear()

    async def told() -> None:
        server.waits_for[AWAY] = server.there_is_told
        with anyio.fail_after(20.0):
            await server.trackers.tell()

    anyio.run(told)
    assert server.notices.due == []


def test_a_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, *(notice(at, THERE) for at in range(9)))
    written = server.write

    async def slow(block: str, run: TrackedRun) -> None:
        server.clock.sleep(9.0)
        await written(block, run)

    monkeypatch.setattr(trackers, "_write", slow)
    assert [len(server.tell()) for _ in range(3)] == [4, 4, 1]


@pytest.mark.parametrize("error", [_answered(403), _answered(500), KeyError("run")])
def test_one_that_fails_for_itself_is_put_off_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server = Server(monkeypatch, *(notice(at, THERE) for at in range(3)))
    server.answers["r0"] = error
    assert server.tell() == ["r0", "r1", "r2"]
    assert server.tell(9.0) == []
    server.notices.due.append(notice(3, THERE))
    assert server.tell(1.1) == ["r3", "r0"]
    del server.answers["r0"]
    assert server.tell(20.1) == ["r0"]
    assert server.notices.due == []


@pytest.mark.parametrize("error", [_answered(401), _answered(503), TimeoutError()])
def test_what_any_other_would_get_too_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server = Server(monkeypatch, *(notice(at, THERE) for at in range(3)))
    server.answers[THERE] = error
    assert server.tell() == ["r0"]


def test_where_one_after_the_other_fails_it_is_the_tracker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch, *(notice(at, THERE) for at in range(25)))
    server.answers[THERE] = _answered(404)
    assert len(server.tell()) == 10
    assert server.tell(9.0) == []


def test_nothing_that_may_have_the_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, notice(1, AWAY), notice(2, THERE))
    server.answers[AWAY] = httpx.LocalProtocolError("Illegal header value b'Bearer s3cr3t'")
    server.answers[THERE] = ValueError("s3cr3t")
    server.tell()
    assert server.notices.errors == {"r1": "LocalProtocolError", "r2": "ValueError"}


def test_what_is_told_of_a_connection_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, notice(1, AWAY))
    server.answers[AWAY] = httpx.RemoteProtocolError("line\0\nforged")
    server.tell()
    assert server.notices.errors["r1"].isprintable()
