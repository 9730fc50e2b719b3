"""`headway config show` and `check`, on a ledger of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headway.cli.main import headway
from headway.ledger import Ledger
from headway.model.number_range import NumberRange
from headway.policy.settings import LINE
from headway.site import POLICY
from tests.support.postgresql import new_ledger
from tests.support.site import forget_site


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    url = new_ledger()
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADWAY_LEDGER_URL", url)
    opened = Ledger.open(url)
    forget_site()
    yield opened
    forget_site()
    opened.close()


def shown(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(headway, ["config", "show", *options, "--json"])
    assert done.exit_code == 0, done.output
    return {each["setting"]: each for each in json.loads(done.stdout)}


def test_a_setting_is_shown_with_where_it_came_from(monkeypatch, ledger: Ledger) -> None:
    monkeypatch.setenv("HEADWAY_PORT", "4300")
    ledger.settings.put(LINE, {"window": 32, "reservations": 2})
    rows = shown()
    assert (rows["HEADWAY_PORT"]["value"], rows["HEADWAY_PORT"]["from"]) == (4300, "environment")
    assert (rows["HEADWAY_POOL"]["value"], rows["HEADWAY_POOL"]["from"]) == ("gpu", "default")
    assert rows["headway-line/site window"]["value"] == 32
    changed = shown("--changed")
    assert {"HEADWAY_PORT", "headway-line/site window"} <= set(changed)
    assert not {"HEADWAY_POOL", "headway-line/site reservations"} & set(changed)


def test_no_secret_is_printed(monkeypatch, ledger: Ledger) -> None:
    monkeypatch.setenv("HEADWAY_REDIS_URL", "redis://:planted-1@127.0.0.1:6379/0")
    monkeypatch.setenv("HEADWAY_DOCKER_HOST", "tcp://me:planted-2@10.0.0.1:2375")
    ledger.settings.put(POLICY, {"environment": {"HTTPS_PROXY": "http://u:planted-3@proxy:1"}})
    for options in ([], ["--json"]):
        done = CliRunner().invoke(headway, ["config", "show", *options])
        assert done.exit_code == 0, done.output
        assert "HEADWAY_REDIS_URL" in done.output
        assert "planted" not in done.output


def checked(file: Path) -> Any:
    done = CliRunner().invoke(headway, ["config", "check", str(file), "--json"])
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "new.yaml"
    path.touch(0o600)
    return path


def test_a_check_says_what_would_differ_and_changes_nothing(ledger: Ledger, file: Path) -> None:
    ledger.settings.put(LINE, {"window": 32, "teams": {"v": {"weight": 2}, "w": {"max_gpus": 1}}})
    ledger.settings.put(POLICY, {"max_pids": 100, "environment": {"A": "1"}})
    file.write_text(
        "queue: {window: 16, reservations: 2, teams: {v: {weight: 2.0, max_running: 3}}}\n"
        "containers: {environment: {B: '2'}, uids: null}\n"
        "nodes: {far: {keep_size: 1GiB}}\n"
    )
    status, said = checked(file)
    assert (status, said["errors"], said["not_known"]) == (0, [], [])
    assert [(each["setting"], each["now"], each["then"]) for each in said["changes"]] == [
        ("containers.environment.B", None, "2"),
        ("queue.window", 32, 16),
        ("queue.teams.v.max_running", None, 3),
        ("nodes.far.keep_size", None, "1GiB"),
    ]
    effects = [each["takes_effect"] for each in said["changes"]]
    assert effects == ["within seconds"] * 3 + ["once node far joins"]
    assert ledger.settings.get(LINE)["window"] == 32  # type: ignore[index]


def test_what_would_be_wrong_together_with_the_block_is_found(ledger: Ledger, file: Path) -> None:
    ledger.team_uids.settle({"w": NumberRange(300_000, 300_999)})
    file.write_text(
        "queue:\n  teams: {v: {max_running: 0}}\n"
        "containers:\n  teams:\n    v: {uids: 300000-300999}\n"
    )
    status, said = checked(file)
    assert status == 2
    (text,) = said["errors"]
    assert f"{file}:5 containers.teams.v.uids: got" in text
    assert f"{file}:2 queue.teams.v.max_running: got 0" in text
    assert ledger.team_uids.all().keys() == {"w"}


def test_without_a_ledger_the_file_is_checked_and_the_machine_shown(
    monkeypatch: pytest.MonkeyPatch, file: Path, tmp_path: Path
) -> None:
    monkeypatch.delenv("HEADWAY_LEDGER_URL")
    (tmp_path / "home").mkdir()
    file.rename(tmp_path / "home/config.yaml")
    (tmp_path / "home/config.yaml").write_text("machine: {pool: big}\nqueue: {window: 16}\n")
    forget_site()
    rows = shown()
    assert (rows["HEADWAY_POOL"]["value"], rows["HEADWAY_POOL"]["from"]) == ("big", "config.yaml")
    status, said = checked(tmp_path / "home/config.yaml")
    assert (status, said["errors"]) == (0, [])
    assert "what the blocks say is not known" in said["not_known"][0]


def test_each_error_is_on_a_line_of_its_own(file: Path) -> None:
    file.write_text("queue:\n  windw: 1\n  reservation: 2\n")
    done = CliRunner().invoke(headway, ["config", "check", str(file)])
    assert done.exit_code == 2
    assert [line.partition(" queue.")[0] for line in done.stderr.splitlines()] == [
        f"{file}:2", f"{file}:3"
    ]  # fmt: skip
