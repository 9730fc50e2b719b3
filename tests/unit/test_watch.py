"""Reading a run's log from outside."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.errors import LogElsewhere
from headway.ledger.records import RunRecord
from headway.model.run import RunState
from headway.server import FlowRun
from headway.watch import log_path, log_pieces
from tests.unit.test_story import RECORD

OVER = FlowRun("r1", "flights", "COMPLETED", "Completed", "", "", {})


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
        path = log_path(one, "r1", attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"attempt {attempt}\n")
    assert text(one) == b"attempt 1\nattempt 2\n"


@pytest.mark.parametrize(
    "record",
    [
        replace(RECORD, node="here"),
        replace(RECORD, node=None, started_at=None, state=RunState.WAITING),
        replace(RECORD, started_at=None, state=RunState.WAITING),  # back in the line
    ],
)
def test_a_run_that_has_written_nothing_has_an_empty_log(tmp_path: Path, record: RunRecord) -> None:
    assert text(site(tmp_path, record)) == b""


def test_a_pipe_in_a_logs_place_is_said_and_not_waited_for(tmp_path: Path) -> None:
    one = site(tmp_path, replace(RECORD, node="here"))
    path = log_path(one, "r1", 1)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(OSError, match="its program put something else there"):
        text(one)
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="its program put something else there"):
        text(one)
