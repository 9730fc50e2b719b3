"""What the commands about runs say, before they ask anybody."""

from typing import Any, cast

import pytest

from headway.cli_runs import _found, _standing, print_table, say
from headway.errors import RunUnknown

SEEN = {"iteration": 41, "epoch": None, "total": 110, "metrics": {"loss": 0.36384}}


def view(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "reason": "", "exit": None} | more


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (view("Completed", exit={"message": "done"}, progress=SEEN), "done"),
        (view("AwaitingHeadroom", reason="needs 2 CPUs", progress=SEEN), "needs 2 CPUs"),
        (
            view("Running", progress=SEEN | {"remaining_s": 145.0}),
            "at 41 of 110, loss 0.3638, 2 min 25 s left",
        ),
        (
            view("Running", progress=SEEN | {"total": None, "remaining_s": None}),
            "at 41, loss 0.3638",
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


def test_no_name_is_no_run() -> None:
    """Every id begins with nothing: `headway cancel "$RUN"` must not take some run."""
    nobody = cast("Any", None)
    with pytest.raises(RunUnknown):
        _found(nobody, nobody, "")


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/data/" + "a" * 200
    print_table(["", ""], [["log", path]])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split() == ["log", path]


def test_a_name_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [["a\x1b[2Jb\nc\u202ed"]])
    say("x\x1b]0;title\x07\ny")
    _, named, said = capsys.readouterr().out.splitlines()
    assert named == "a\\x1b[2Jb\\nc\\u202ed"
    assert said == "x\\x1b]0;title\\x07\\ny"
