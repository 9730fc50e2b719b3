"""Reading a run's log from outside."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.errors import LogElsewhere
from headway.ledger.records import RunRecord
from headway.model.progress import ProgressPoint
from headway.model.run import RunState, Step, StepState
from headway.prefect.client import ListedRun
from headway.testing.clock import FakeClock
from headway.views.logs import log_pieces, log_to_show
from headway.views.site_snapshot import RunProgress
from headway.views.watch import watch_run
from tests.unit.views.test_run_report import NOON, RECORD

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
    """A ledger and a Prefect server with one run that goes on from look to look."""

    def __init__(self, home: Path, *looks: tuple[str, bytes, int | None]) -> None:
        self.looks = list(looks)
        self.at = -1
        running = replace(RECORD, state=RunState.RUNNING, attempt=1, node="here")
        self.record = replace(running, started_at=NOON)
        self.site = site(home, self.record)
        self.site.clock = FakeClock()
        ledger = self.site.ledger
        step = Step("train", 1, StepState.RUNNING, NOON, None)
        ledger.steps = SimpleNamespace(of_run=lambda _: [step])
        ledger.progress = SimpleNamespace(latest=self._point)
        self.api_url = "http://127.0.0.1:4200/api"

    def run(self, _run_id: str) -> ListedRun:
        self.at = min(self.at + 1, len(self.looks) - 1)
        state, text, _ = self.looks[self.at]
        path = log_to_show(self.site, "r1", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            log.write(text)
        return ListedRun("r1", "flights", state.upper(), state, "", "", {})

    def _point(self, _run_id: str) -> ProgressPoint | None:
        done = self.looks[self.at][2]
        return None if done is None else ProgressPoint(0.0, done, None, 40, {"loss": 0.5})


def test_who_watches_sees_the_log_and_how_far_the_run_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to say "Running" and nothing more for minutes."""
    watched = Watched(
        tmp_path,
        ("Running", b"loading \x1b[31mdata\x1b[0m\x07\nhalf a ", 10),
        ("Running", b'line\n 1%\r 2%\r\n{"headway": {"iteration": 11}}\n', 11),
        ("Completed", b"bye", 12),
    )
    running = replace(RECORD, state=RunState.RUNNING)
    monkeypatch.setattr("headway.views.watch.details", lambda *_: {})
    monkeypatch.setattr(
        "headway.views.watch.progress_of_runs", lambda *_: [RunProgress(running, 1.0, 0.25, 42.0)]
    )
    status = watch_run(watched.site, cast("Any", watched), "r1", machine=False)
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
