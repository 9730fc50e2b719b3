"""Reading a run's log from outside."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.errors import GatewayUnreachable, LogElsewhere
from headway.ledger.records import RunRecord
from headway.model.run import RunState
from headway.prefect.client import ListedRun
from headway.testing.clock import FakeClock
from headway.views.logs import log_pieces, log_to_show
from headway.views.watch import watch_run
from tests.unit.views.test_run_report import RECORD

OVER = ListedRun("r1", "flights", "COMPLETED", "Completed", "", "", {})


def site(home: Path, record: RunRecord) -> Any:
    return SimpleNamespace(
        settings=SimpleNamespace(
            home=home, runs_dir=home / "runs", node="here", secrets_dir=home / "secrets"
        ),
        ledger=SimpleNamespace(runs=SimpleNamespace(get=lambda _: record)),
    )


def text(of: Any) -> bytes:
    return b"".join(log_pieces(of, cast("Any", None), OVER, follow=False))


def test_a_log_on_another_node_is_said_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(LogElsewhere) as caught:
        text(site(tmp_path, RECORD))
    assert (caught.value.node, caught.value.path) == ("node-a", "runs/r1/log/attempt-2.log")


def test_a_log_that_is_here_is_read_whoever_wrote_it(tmp_path: Path) -> None:
    one = site(tmp_path, RECORD)
    for attempt in (1, 2):
        path = log_to_show(one, "r1", attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"attempt {attempt}\n")
    assert text(one) == b"attempt 1\nattempt 2\n"


@pytest.mark.parametrize(
    "record",
    [
        replace(RECORD, node="here"),
        replace(RECORD, node=None, started_at=None, state=RunState.WAITING),
        replace(RECORD, started_at=None, state=RunState.WAITING),  # back in the queue
    ],
)
def test_a_run_that_has_written_nothing_has_an_empty_log(tmp_path: Path, record: RunRecord) -> None:
    assert text(site(tmp_path, record)) == b""


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
            "remaining_s": 42.0, "progress": point if done else None,
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
        "train 10 of 40: 42 s left, loss 0.5",
        "half a line",
        " 2%",
        "bye",
        "Completed",
    ]


def test_who_watches_goes_on_when_the_gateway_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(*LOOKS)
    watched.away = 3
    assert watch_run(watched, "r1", FakeClock(), machine=True) == 0
    assert json.loads(capsys.readouterr().out) == {"run_id": "r1"}


def test_a_pipe_in_a_logs_place_is_said_and_not_waited_for(tmp_path: Path) -> None:
    one = site(tmp_path, replace(RECORD, node="here"))
    path = log_to_show(one, "r1", 1)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(OSError, match="its program put something else there"):
        text(one)
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="its program put something else there"):
        text(one)
