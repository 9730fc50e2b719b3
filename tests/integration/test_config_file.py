"""A site with a config.yaml: it comes up by it, and what it changes holds while runs go on."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway.ledger import Ledger
from headway.policy.settings import LINE
from headway.this_node import os_user
from tests.support.site import LiveSite, live_site, sleeper, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a ceiling is root's")

BORN = """\
machine:
  ceiling: {ceiling}
  lease_ttl_s: 600
queue:
  window: 50
nodes:
  test-node: {{price_per_hour: 2.5}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    folder = tmp_path_factory.mktemp("config")
    (folder / "ceiling.yaml").write_text("networks: [bridge, none]\n")
    (folder / "home").mkdir(mode=0o711)
    write(folder / "home", BORN.format(ceiling=folder / "ceiling.yaml"))
    with live_site(folder / "home", "process") as found:
        yield found


def write(home: Path, text: str) -> None:
    (home / "config.yaml").touch(0o600)
    (home / "config.yaml").write_text(text)


def born(site: LiveSite) -> str:
    return BORN.format(ceiling=site.home.parent / "ceiling.yaml")


def block(site: LiveSite, kind: str, name: str) -> dict[str, Any]:
    found = site.call("GET", f"block_types/slug/{kind}/block_documents/name/{name}")
    data: dict[str, Any] = found["data"]
    return data


def in_ledger(site: LiveSite, look: Callable[[Ledger], Any]) -> Any:
    with closing(Ledger.open(site.ledger_url())) as ledger:
        return look(ledger)


def line(site: LiveSite) -> dict[str, Any]:
    return in_ledger(site, lambda ledger: ledger.settings.get(LINE))  # type: ignore[no-any-return]


def price(site: LiveSite) -> float:
    """By which the node's worker goes."""
    return in_ledger(site, lambda it: it.nodes.get("test-node").node.price_per_hour)  # type: ignore[no-any-return]


def test_a_site_is_born_with_it(site: LiveSite) -> None:
    rows = {each["setting"]: each for each in site.json("config", "show", "--changed")}
    ttl = rows["HEADWAY_LEASE_TTL_S"]
    assert (ttl["value"], ttl["from"]) == (600.0, "config.yaml")
    assert rows["headway-line/site window"]["value"] == 50
    assert block(site, "headway-line", "site")["window"] == 50
    assert block(site, "headway-node", "test-node")["price_per_hour"] == 2.5
    assert price(site) == 2.5
    assert site.json("config", "check") | {"file": ""} == {
        "file": "", "errors": [], "changes": [], "not_known": []
    }  # fmt: skip


def test_it_is_applied_while_a_run_goes_on(site: LiveSite, tmp_path: Path) -> None:
    run_id = site.submit(tmp_path, **sleeper(4000))
    site.until(run_id, "Running")
    before = site.pids()
    site.set_knobs(reservations=3, teams={"speech": {"max_gpus": 2}})
    text = born(site).replace("window: 50", "window: 40\n  teams: {vision: {max_gpus: 1}}")
    text = text.replace("price_per_hour: 2.5", "price_per_hour: 4, keep_size: 3GiB")
    write(site.home, text.replace("lease_ttl_s: 600", "lease_ttl_s: 700"))
    expected = {
        "machine.lease_ttl_s": ("(not known)", 700.0),
        "queue.window": (50, 40),
        "queue.teams.vision.max_gpus": (None, 1),
        "nodes.test-node.price_per_hour": (2.5, 4),
        "nodes.test-node.keep_size": (None, "3GiB"),
    }

    def told(command: str) -> dict[str, Any]:
        said = site.json("config", command)
        said = said["changes"] if command == "check" else said
        found = {each["setting"]: (each["now"], each["then"]) for each in said}
        later = [each for each in said if "headway up" in each["takes_effect"]]
        assert [each["setting"] for each in later] == ["machine.lease_ttl_s"]
        return found

    assert told("check") == expected
    assert line(site)["window"] == 50
    assert told("apply") == expected
    wait_for(lambda: price(site) == 4, site.worker_log)
    held = line(site)
    assert (held["window"], held["reservations"]) == (40, 3)
    assert held["teams"] == {"speech": {"max_gpus": 2}, "vision": {"max_gpus": 1}}
    assert block(site, "headway-line", "site")["teams"] == held["teams"]
    assert block(site, "headway-node", "test-node")["keep_size"] == "3GiB"
    assert site.pids() == before
    assert site.show(run_id)["state"] == "Running"
    assert told("apply") == {"machine.lease_ttl_s": ("(not known)", 700.0)}
    acts = site.json("audit", "--actor", os_user())
    changed = {
        act["subject"]: act["details"] for act in acts[::-1] if act["act"] == "setting.change"
    }
    assert "50 → 40" in str(changed[LINE])
    assert "3GiB" in str(changed["node/test-node"])
    site.run("cancel", run_id)


def test_of_a_file_that_allows_too_much_nothing_is_applied(site: LiveSite) -> None:
    window = line(site)["window"]
    write(site.home, born(site) + "containers:\n  max_pids: 99\n  network: host\n")
    before = block(site, "headway-container-policy", "site")
    for command in ("apply", "check"):
        done = site.run("config", command)
        assert done.returncode == 2, done.stdout
        assert f"{site.home}/config.yaml:10 containers.network: got " in done.stderr
    assert block(site, "headway-container-policy", "site") == before
    assert line(site)["window"] == block(site, "headway-line", "site")["window"] == window
    assert site.run("up").returncode == 2


def test_up_has_the_file_win_for_what_it_names(site: LiveSite) -> None:
    write(site.home, born(site) + "  later: {cache_budget: 1073741824}\n")
    site.set_knobs(window=60, reservations=5)
    done = site.run("up")
    assert done.returncode == 0, done.stderr
    assert "config.yaml: queue.window: 60 → 50, within seconds" in done.stdout
    assert "once node later joins" in done.stdout
    said = block(site, "headway-line", "site")
    assert (said["window"], said["reservations"]) == (50, 5)
    assert block(site, "headway-node", "later")["cache_budget"] == 1073741824
    assert in_ledger(site, lambda it: it.settings.get("node/later")) == {"cache_budget": 1 << 30}
    assert json.dumps(site.json("config", "apply")) == "[]"
