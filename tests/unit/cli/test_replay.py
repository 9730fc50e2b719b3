import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.answers import checked
from headway.cli.main import headway

TRACE = Path(__file__).parents[2] / "data" / "jobs-philly-extract.csv"
SIZE = ["--nodes", "1", "--gpus", "8"]


def test_every_policy_as_json() -> None:
    call = ["replay", str(TRACE), *SIZE, "--policy", "all", "--json"]
    got = CliRunner().invoke(headway, call)
    assert got.exit_code == 0, got.output
    documents = checked(call, got.stdout)
    told = [(each["policy"], each["estimates"], each["sharing"]) for each in documents]
    assert told == [
        ("fifo", "user", "whole"),
        ("easy", "user", "whole"),
        ("easy", "learned", "headway"),
        ("conservative", "learned", "headway"),
        ("headway", "learned", "headway"),
    ]
    assert all(each["jobs"] == 401 for each in documents)
    fifo, easy, *alike, ours = (each["mean_wait_s"] for each in documents)
    assert easy < fifo
    assert ours <= max(alike)


def test_a_table_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    call = ["replay", str(TRACE), *SIZE, "--policy", "easy", "--policy", "headway"]
    got = CliRunner().invoke(headway, call)
    assert got.exit_code == 0, got.output
    first = [line.split()[0] for line in got.stdout.splitlines() if line]
    # The waits by size follow.
    assert first == ["policy", "easy", "headway", "GPUs", "1", "2", "8"]


def test_each_team_is_held_against_its_own_share(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{team},{at},100,8,900" for at in range(5) for team in ("red", "blue")]
    path.write_text("\n".join(["team,submit_s,duration_s,gpus,user_limit_s", *rows]))
    call = ["replay", str(path), *SIZE, "--sharing", "whole", "--team", "red=3", "--json"]
    got = CliRunner().invoke(headway, call)
    assert got.exit_code == 0, got.output
    (document,) = json.loads(got.stdout)
    blue, red = document["by_team"]
    assert red["mean_wait_s"] < blue["mean_wait_s"]
    assert red["first_come_wait_s"] < blue["first_come_wait_s"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--gpu-memory", "much"], "--gpu-memory"),
        (["--gpu-memory", "1GiB"], "give more --gpu-memory"),
        (["--set", "promise_factor=x"], "give a number"),
        (["--set", "speed=1"], "NAME one of"),
        (["--set", "window=0"], "give 1 to 1000000000"),
        (["--set", "window=99999999999999999999"], "give 1 to 1000000000"),
        (["--set", "unknown_runtime_s=1e12"], "above 0 and at most 3.1536e+08"),
        (["--set", "promise_factor=inf"], "above 0 and at most 1e+09"),
        (["--team", "red"], "give NAME=WEIGHT"),
    ],
)
def test_bad_input_is_one_line_and_status_2(more: list[str], message: str) -> None:
    got = CliRunner().invoke(headway, ["replay", str(TRACE), *SIZE, *more])
    assert got.exit_code == 2
    assert message in got.stderr
    assert len(got.stderr.splitlines()) == 1


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_s,gpus\na,0,1\n")
    got = CliRunner().invoke(headway, ["replay", str(path), *SIZE, "--json"])
    assert got.exit_code == 2
    assert "add duration_s" in got.stderr
    assert got.stdout == ""
