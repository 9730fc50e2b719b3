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

    def untracked(self, _pool: str, without: list[str]) -> list[Notice]:
        return [each for each in self.due if each.block not in without]

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
        site = SimpleNamespace(
            clock=self.clock, ledger=SimpleNamespace(notices=self.notices),
            settings=SimpleNamespace(pool="gpu"),
        )  # fmt: skip
        monkeypatch.setattr(trackers, "_write", self.write)
        monkeypatch.setattr(trackers, "_ended", lambda _site, run_id: run_id)
        self.trackers = Trackers(site)  # type: ignore[arg-type]

    async def write(self, block: str, run: TrackedRun) -> None:
        self.asked.append((block, run))
        if block in self.answers:
            raise self.answers[block]

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
    assert server.tell() == ["r1", "r3"]
    assert server.notices.errors == {"r1": "ConnectError: nobody", "r3": ""}
    assert server.tell(9.0) == []
    assert server.tell(1.1) == ["r1"]
    assert server.tell(19.0) == []
    assert server.tell(1.1) == ["r1"]
    del server.answers[AWAY]
    assert server.tell(41.0) == ["r1", "r2"]
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
