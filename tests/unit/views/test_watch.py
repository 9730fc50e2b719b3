"""Watching a run: its states, its log and how far it is, on one terminal."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headway.errors import GatewayUnreachable
from headway.views.watch import watch_run
from tests.ports.clock import FakeClock


class Watched:
    """A gateway at which one run goes on from look to look."""

    def __init__(self, *looks: tuple[str, bytes, int | None]) -> None:
        self.looks = list(looks)
        self.at = -1
        self.away = 0

    def standing(self, run: str) -> dict[str, Any]:
        if self.away:
            self.away -= 1
            raise GatewayUnreachable("http://gate", "ConnectError")
        self.at = min(self.at + 1, len(self.looks) - 1)
        state, _, done = self.looks[self.at]
        point = {"iteration": done, "epoch": None, "total": 40, "metrics": {"loss": 0.5}}
        return {
            "state": state, "message": "", "reason": "", "over": state == "Completed",
            "started_at": "2026-01-01T12:00:00+00:00", "attempt": 1, "step": "train",
            "progress_text": "25% (at iteration 10 of 40), 42 s left",
            "progress": point if done else None,
        }  # fmt: skip

    def run(self, run: str) -> dict[str, Any]:
        return {"run_id": run}

    def log_of(self, run_id: str) -> "Watched":
        return self

    def new(self) -> Iterator[bytes]:
        yield self.looks[self.at][1]


LOOKS = (
    ("Running", b"loading \x1b[31mdata\x1b[0m\x07\nhalf a ", 10),
    ("Running", b'line\n 1%\r 2%\r\n{"headway": {"iteration": 11}}\n', 11),
    ("Completed", b"bye", 12),
)


def test_who_watches_sees_the_log_and_how_far_the_run_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It used to say "Running" and nothing more for minutes."""
    status = watch_run(Watched(*LOOKS), "r1", FakeClock(), machine=False)
    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert [line.rstrip() for line in lines if line.strip()] == [
        "Running",
        "loading data",
        "train: 25% (at iteration 10 of 40), 42 s left, loss 0.5",
        "half a line",
        " 2%",
        "bye",
        "Completed",
    ]


def test_who_watches_goes_on_when_the_gateway_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(*LOOKS)
    watched.away = 3
    assert watch_run(watched, "r1", FakeClock(), machine=True) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"run_id": "r1"}
    assert said.err.count("no gateway answers at http://gate") == 1  # no terminal, so no bar
