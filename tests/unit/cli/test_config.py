"""`headway config show`, on a ledger of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headway.cli.main import headway
from headway.ledger import Ledger
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
