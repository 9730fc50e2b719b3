"""The API on a real ledger: answers, refusals, and metrics that promtool has nothing against."""

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Gpu, Node
from headway.model.progress import ProgressPoint
from headway.model.telemetry import TelemetryPoint
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB
from tests.support.api import serving

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}


@pytest.fixture
def site(ledger_url: str, tmp_path: Path) -> Iterator[Site]:
    made = Site(
        Settings(home=tmp_path / "home", ledger_url=SecretStr(ledger_url), runtime="process"),
        SystemClock(),
    )
    node = Node("node-a", "gpu", Capacity(8.0, 64 * GIB))
    made.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    made.ledger.runs.enqueue(
        "r1", JOB, name="happy-otter", owner="me", team="t", pool="gpu", priority=0,
        submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    made.ledger.progress.append("r1", 1, [ProgressPoint(2.0, 5, None, 10, {"loss": 0.5})], first=0)
    yield made
    made.ledger.close()


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    with serving(site) as url, httpx.Client(base_url=url, timeout=60) as opened:
        yield opened


def test_runs_nodes_and_the_line(client: httpx.Client) -> None:
    assert [run["run_id"] for run in client.get("/runs").json()] == ["r1"]
    details = client.get("/runs/happy-otter").json()
    assert details["job"] == JOB
    assert details["progress"]["iteration"] == 5
    points = client.get("/runs/r1/progress").json()["points"]
    assert points == [
        {"t_s": 2.0, "iteration": 5, "epoch": None, "total": 10, "metrics": {"loss": 0.5}}
    ]
    assert client.get("/nodes").json()[0]["node"] == "node-a"
    assert client.get("/queue").json()[0]["position"] == 1


def test_an_estimate_is_made_for_a_job(client: httpx.Client) -> None:
    answer = client.post("/estimates", json={"job": JOB})
    assert answer.status_code == 200, answer.text
    assert [option["nodes"] for option in answer.json()["options"]] == [["node-a"]]


def test_refusals_say_what_is_wrong(client: httpx.Client) -> None:
    unknown = client.get("/runs/nobody")
    assert (unknown.status_code, "nobody" in unknown.json()["detail"]) == (404, True)
    wrong = client.post("/estimates", json={"job": JOB | {"retries": -1}})
    assert (wrong.status_code, "retries" in wrong.json()["detail"]) == (422, True)
    assert client.post("/estimates", json={"jobb": JOB}).status_code == 422
    assert client.get("/nodes", headers={"host": "evil.example"}).status_code == 400


def test_every_path_is_documented(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/runs", "/runs/{run}", "/runs/{run}/progress", "/nodes", "/queue", "/estimates",
        "/metrics",
    }  # fmt: skip
    assert all(op["description"] for path in paths.values() for op in path.values())


def test_a_gpu_that_is_held_and_not_used_is_a_warning_on_the_run(
    site: Site, client: httpx.Client
) -> None:
    gpu = Gpu("GPU-0", 0, "V100", 16 * GIB)
    node = Node("node-g", "gpu", Capacity(8.0, 64 * GIB, (gpu,)))
    site.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    demand = Demand(GIB, gpus=1, gpu_memory_bytes=GIB)
    lease = site.ledger.leases.admit("r1", "node-g", demand, reading=None, ttl_s=60.0)
    assert isinstance(lease, Lease)
    site.ledger.runs.begin("r1", 1, lease.token, container="c", runtime="process")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    held = TelemetryPoint(moment, "GPU-0", busy_frac=0.0, run_bytes={"r1": 2 * GIB})
    site.ledger.telemetry.append("node-g", [held] * 300)
    warnings = client.get("/runs/r1").json()["warnings"]
    assert [each["kind"] for each in warnings] == ["over_grant", "gpu_unused"]
    assert "was granted 1.0 GiB" in warnings[0]["text"]


@pytest.mark.prometheus
def test_promtool_accepts_the_metrics(client: httpx.Client) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (root on Debian: make test-deps)")
    text = client.get("/metrics").text
    assert 'headway_runs{state="waiting"} 1.0' in text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
