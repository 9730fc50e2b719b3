"""`headway progress`: what it prints, and what it refuses."""

import json
from pathlib import Path

from click.testing import CliRunner

from headway.cli.main import headway

DATA = Path(__file__).parents[2] / "data" / "progress"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(headway, ["progress", *arguments])
    return result.exit_code, result.output


def test_parse_prints_format_and_points() -> None:
    status, text = run("parse", str(DATA / "mmdetection.log"), "--json")
    document = json.loads(text)
    assert status == 0
    assert document["format"] == "pytorch"
    assert [point["iteration"] for point in document["points"]] == [50, 100, 2550]
    first = document["points"][0]
    assert first.keys() == {"iteration", "epoch", "total", "metrics", "t_s"}
    assert (first["epoch"], first["total"], first["t_s"]) == (0.02, None, 60.0)
    assert first["metrics"]["loss"] == 0.0394


def test_parse_takes_what_the_job_says(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"round 2: 0.5\nround 3: nan")
    pattern = r"round (?P<iteration>\d+): (?P<err>\S+)"
    document = json.loads(run("parse", str(log), "--pattern", pattern, "--json")[1])
    assert document["format"] == "custom"
    assert [(p["iteration"], p["metrics"]) for p in document["points"]] == [
        (2, {"err": 0.5}),
        (3, {"err.nan": 1.0}),
    ]
    _, text = run("parse", str(DATA / "xgboost.log"), "--epochs", "50", "--json")
    assert {point["total"] for point in json.loads(text)["points"]} == {50}


def test_a_log_without_progress_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"hello\n\xff\xfe\n")
    status, text = run("parse", str(log), "--json")
    assert (status, json.loads(text)) == (0, {"points": [], "format": None})
    assert run("parse", str(log))[1] == "no known format: 0 points in a.log\n"


def test_parse_shows_the_newest_points_to_people() -> None:
    status, text = run("parse", str(DATA / "keras3.log"))
    assert status == 0
    assert text.startswith("keras: 5 points in keras3.log\n")
    assert "1876" in text


def test_a_missing_file_is_refused() -> None:
    assert run("parse", "nowhere.log")[0] == 2


def test_a_bad_pattern_is_refused() -> None:
    status, text = run("parse", str(DATA / "keras3.log"), "--pattern", "(a")
    assert status == 2
    assert "RE2" in text
