"""A real Prometheus scrapes a site and evaluates the shipped rules."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.model.node import Capacity, Gpu, HostReading, Node, NodeReading
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB
from tests.support.api import bearer, serving
from tests.support.postgresql import new_ledger
from tests.support.prometheus import RULES, query, scraping, until, why_none

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if reason := why_none():
        pytest.skip(reason)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site with a node that has lost one of its two GPUs."""
    ledger = SecretStr(new_ledger())
    site = Site(Settings(home=tmp_path, ledger_url=ledger, runtime="process"), SystemClock())
    gpus = tuple(Gpu(f"GPU-{n}", n, "V100", 16 * GIB) for n in range(2))
    node = Node("node-a", "gpu", Capacity(8.0, 64 * GIB, gpus))
    site.ledger.nodes.register(node, boot_id="boot", worker_token="w")
    host = HostReading(64 * GIB, 4 * GIB, 0.25, 100 * GIB)
    lost = NodeReading(site.clock.now(), host, (), lost_gpus={"GPU-1": "NVML error 15"})
    assert site.ledger.nodes.heartbeat("node-a", "w", lost)
    yield site
    site.ledger.close()


@pytest.fixture
def prometheus(site: Site, tmp_path: Path) -> Iterator[httpx.Client]:
    with serving(site) as url, scraping(url, bearer(site), tmp_path) as client:
        yield client


def test_a_lost_gpu_raises_its_alert_and_only_it(prometheus: httpx.Client) -> None:
    until(lambda: bool(query(prometheus, 'ALERTS{alertstate="firing"}')))
    firing = [each["metric"] for each in query(prometheus, 'ALERTS{alertstate="firing"}')]
    assert [(alert["alertname"], alert["gpu"]) for alert in firing] == [("GpuLost", "GPU-1")]
    assert query(prometheus, "up")[0]["value"][1] == "1"
    groups = prometheus.get("/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == 10
    assert {rule["health"] for rule in rules} == {"ok"}


def test_the_rules_hold_in_their_own_tests(tmp_path: Path) -> None:
    shutil.copytree(RULES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "headway.token").touch()
    for command in (
        ["promtool", "check", "rules", str(RULES / "alerts.yml")],
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")],
        ["promtool", "test", "rules", str(ROOT / "tests/prometheus/alerts_test.yml")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
