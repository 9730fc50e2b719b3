"""What the commands about runs say, before they ask anybody."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import click
import pytest
from click.testing import CliRunner

from headway.cli.main import headway
from headway.cli.output import print_table, say
from headway.cli.runs import Since, _run_row, _standing
from headway.clock import SystemClock

SEEN = {"iteration": 41, "epoch": None, "total": 110, "metrics": {"loss": 0.36384}}


def view(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "reason": "", "exit": None, "progress_text": ""} | more


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (view("Completed", exit={"message": "done"}, progress=SEEN), "done"),
        (view("AwaitingHeadroom", reason="needs 2 CPUs", progress=SEEN), "needs 2 CPUs"),
        (
            view("Running", progress=SEEN, progress_text="37% (at iteration 40), 2 min left"),
            "37% (at iteration 40), 2 min left, loss 0.3638",
        ),
        (
            view("Running", progress=SEEN | {"total": None}, progress_text="at iteration 41"),
            "at iteration 41, loss 0.3638",
        ),
        (
            view(
                "Running",
                progress={"iteration": None, "epoch": None, "metrics": {}, "remaining_s": None},
            ),
            "no progress has been read from its log yet",
        ),
        (view("Pending", reason="on its way"), "on its way"),
    ],
)
def test_how_a_run_stands_in_one_line(seen: dict[str, Any], said: str) -> None:
    assert _standing(seen) == said


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/data/" + "a" * 200
    print_table(["", ""], [["log", path]])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split() == ["log", path]


def test_no_line_is_padded_to_what_another_says_last(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["run", "why"], [["a", ""], ["b", "no room " * 40]])
    _, short, long = capsys.readouterr().out.splitlines()
    assert short == "a"
    assert len(long) > 300


@pytest.mark.parametrize(
    ("width", "heading"), [(200, "run name owner why"), (46, "run name why"), (24, "run name why")]
)
def test_a_narrow_terminal_goes_without_what_can_be_spared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, heading: str
) -> None:
    monkeypatch.setattr("headway.cli.output._PIPE_COLUMNS", width)
    row = ["a1b2c3d4", "train", "grace.hopper", "no room for it before noon, as far as is known"]
    print_table(["run", "name", "owner", "why"], [row], spare=("owner",))
    assert capsys.readouterr().out.splitlines()[0].split() == heading.split()


def test_a_name_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [["a\x1b[2Jb\nc\u202ed"]])
    say("x\x1b]0;title\x07\ny")
    _, named, said = capsys.readouterr().out.splitlines()
    assert named == "a\\x1b[2Jb\\nc\\u202ed"
    assert said == "x\\x1b]0;title\\x07\\ny"


def test_a_moment_is_so_long_ago_or_a_date() -> None:
    since = Since()
    ago = SystemClock().now() - since.convert("1h30m", None, None)
    assert ago.total_seconds() == pytest.approx(5400, abs=60)
    assert since.convert("2026-01-31T12:00:00+01:00", None, None).hour == 12 - 1 + _offset_h()
    assert since.convert("2026-01-31", None, None).tzinfo is not None
    for wrong in ("yesterday", "", "-1h", "9" * 30 + "w"):
        with pytest.raises(click.BadParameter, match="is no duration such as 2h"):
            since.convert(wrong, None, None)


def _offset_h() -> int:
    offset = datetime(2026, 1, 31, 11, tzinfo=UTC).astimezone().utcoffset() or timedelta()
    return int(offset.total_seconds() // 3600)


def test_a_run_of_nobody_known_is_listed_so() -> None:
    listed = {
        "run_id": "0123456789", "name": "digits", "owner": None, "node": None, "attempt": 2,
        "size": None,
        "submitted_at": "2026-01-01T12:00:00Z", "duration_s": 75.0,
        "progress_text": "25%, 3 min 45 s left for 0.50",
    }  # fmt: skip
    row = _run_row(view("Running", **listed))
    assert row[:4] == ["01234567", "digits", "unknown", "Running (attempt 2)"]
    assert row[6:] == ["1 min 15 s", "25%, 3 min 45 s left for 0.50", ""]
    assert _run_row(view("AwaitingHeadroom", **listed | {"duration_s": None}))[6] == ""


def test_what_prints_the_gateways_answers_loads_no_ledger_and_no_estimators() -> None:
    """A second and a half for each `queue`, `why`, `run`, `session` and `submit --watch`."""
    code = (
        "import sys, headway.client, headway.views.tables, headway.views.watch,"
        " headway.client.ways, headway.model.job_text;"
        "from headway.cli import arrays, queue, run, runs, session, submit, usage;"
        "print({'sqlalchemy', 'numpy', 'scipy', 'fsspec', 'prefect'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_a_long_last_column_that_is_cut_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["run", "why"], [["a", "no room " * 40]], cut=True)
    _, line = capsys.readouterr().out.splitlines()
    assert line.endswith("…")
    assert len(line) < 100


def test_a_data_set_is_named_by_an_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rehearsed: list[dict[str, Any]] = []

    class Client:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def rehearse(self, job: dict[str, Any], **_: object) -> dict[str, Any]:
            rehearsed.append(job)
            return {}

    monkeypatch.setattr("headway.cli.submit.open_client", Client)
    job = tmp_path / "job.yaml"
    job.write_text("name: a\nimage: i\ncommand: [x]\n")
    words = ["submit", str(job), "--data", "headway://toy", "--dry-run", "--json"]
    done = CliRunner().invoke(headway, [*words, "--set", "dataset.size=1GiB"])
    assert done.exit_code == 0, done.output
    assert rehearsed[0]["dataset"]["uri"] == "headway://toy"
