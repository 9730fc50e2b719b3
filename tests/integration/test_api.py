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
from headway.ledger.progress_snapshots import NOT_KEPT_YET
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import Demand
from headway.model.node import Capacity, Gpu, Node
from headway.model.progress import ProgressPoint
from headway.model.run_warning import Silent
from headway.model.telemetry import TelemetryPoint
from headway.policy.settings import LINE
from headway.run.upkeep import OverGrants, SilentCheck
from headway.runtime.port import Usage
from headway.settings import Settings
from headway.site import Site
from headway.this_node import adopt
from headway.units import GIB
from tests.support.api import MEMBER, bearer, serving
from tests.support.fence import fence_of
from tests.support.leading import grant_in_term
from tests.support.on_ledger import enqueue

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}


@pytest.fixture
def site(ledger_url: str, tmp_path: Path) -> Iterator[Site]:
    made = Site(
        Settings(home=tmp_path / "home", ledger_url=SecretStr(ledger_url), runtime="process"),
        SystemClock(),
    )
    node = Node("node-a", "gpu", Capacity(8.0, 64 * GIB))
    made.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    enqueue(made.ledger, "r1", JOB, name="happy-otter")
    made.ledger.progress.append(
        fence_of(made.ledger, "r1"), [ProgressPoint(2.0, 5, None, 10, {"loss": 0.5})], first=0
    )
    yield made
    made.ledger.close()


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    headers = bearer(site)
    with serving(site) as url, httpx.Client(base_url=f"{url}/v1", headers=headers) as opened:
        opened.timeout = 60
        yield opened


@pytest.fixture
def member(site: Site, client: httpx.Client) -> Iterator[httpx.Client]:
    """Of team t. Whether a run is there that only Prefect knows, operators alone want to know."""
    headers = bearer(site, "me", "t", MEMBER)
    with httpx.Client(base_url=client.base_url, headers=headers, timeout=60) as opened:
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


def test_the_ways_to_run_a_runs_job_are_those_of_an_estimate(
    site: Site, client: httpx.Client
) -> None:
    asked = site.ledger.runs.find("r1").job
    said = client.get("/runs/r1/ways").json()
    assert said["options"] == client.post("/estimates", json={"job": asked}).json()["options"]
    assert said["options"]
    others = client.get("/runs/r1/ways", headers=bearer(site, "you", "others", MEMBER))
    assert others.status_code == 404


def test_an_estimate_is_made_for_a_job(client: httpx.Client) -> None:
    answer = client.post("/estimates", json={"job": JOB})
    assert answer.status_code == 200, answer.text
    assert [option["nodes"] for option in answer.json()["options"]] == [["node-a"]]


def test_what_has_told_epochs_is_not_said_to_be_starting(site: Site, client: httpx.Client) -> None:
    """Between two steps `--watch` told "starting" behind the epochs of its program."""
    demand = Demand(GIB)
    lease = grant_in_term(site.ledger, "r1", "node-a", demand, ttl_s=60.0)
    assert client.get("/runs/r1/standing").json()["step"] == "starting"
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    assert client.get("/runs/r1/standing").json()["step"] is None


def test_refusals_say_what_is_wrong(client: httpx.Client, member: httpx.Client) -> None:
    unknown = member.get("/runs/nobody")
    assert (unknown.status_code, "nobody" in unknown.json()["detail"]) == (404, True)
    wrong = client.post("/estimates", json={"job": JOB | {"retries": -1}})
    assert (wrong.status_code, "retries" in wrong.json()["detail"]) == (422, True)
    assert client.post("/estimates", json={"jobb": JOB}).status_code == 422
    assert client.get("/nodes", headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"job": {"retries": NaN}}', 'body: got "NaN"; give finite numbers'),
        (b'{"job": {}, "budget": -Infinity}', 'body: got "-Infinity"; give finite'),
        (b'{"job": {}, "budget": 1e400}', 'body: got "1e400"; give finite'),
        (b'{"job": {"name": "\\ud800"}}', "half of a surrogate pair"),
        (b'{"job": {"\\udfff": 1}}', "half of a surrogate pair"),
        (b'{"job": {"retries": 9223372036854775808}}', "between -2^63 and 2^63 - 1"),
        (b'{"job": {"retries": ' + b"9" * 5000 + b"}}", "between -2^63 and 2^63 - 1"),
        (b'{"job": {}, "job": {}}', 'body: got "job"; give each key once'),
        (b"[" * 100_000, "nest at most"),
        (b"\xff", "write UTF-8"),
        (b"", "write JSON"),
        (b"name: job", "write JSON"),
        (b'"' + b"x" * (1 << 20) + b'"', "give at most 256 KiB"),
        (b'{"job": {}, "prefer": "best"}', "body.prefer: got"),
    ],
)
def test_what_is_no_strict_json_is_refused_in_one_line(
    client: httpx.Client, body: bytes, said: str
) -> None:
    answer = client.post("/estimates", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    detail = answer.json()["detail"]
    assert said in detail
    assert "\n" not in detail


@pytest.mark.parametrize("path", ["/runs/%00", "/runs/%ED%A0%80", "/runs/a%00/progress"])
def test_a_run_of_an_impossible_name_is_not_found(member: httpx.Client, path: str) -> None:
    assert member.get(path).status_code == 404


@pytest.mark.parametrize("path", ["/runs?name=%00", "/arrays?name=%00", "/queue?pool=%00"])
def test_what_no_database_takes_is_refused(member: httpx.Client, path: str) -> None:
    assert member.get(path).status_code == 422


def test_a_job_file_is_read_and_never_a_long_one(member: httpx.Client) -> None:
    wanted = {"text": "name: a\nimage: x", "command": "python 'a b.py' {lr}", "array": ["lr=1,2"]}
    read = member.post("/job-files", json=wanted).json()
    assert (read["size"], read["member"]["command"]) == (2, ["python", "a b.py", "1"])
    assert read["command"] == "python 'a b.py' '{lr}'"
    changes = [f"env.A{n}={'x' * 1000}" for n in range(40)]
    refused = member.post("/job-files", json=wanted | {"changes": changes})
    assert (refused.status_code, "give at most 32" in refused.json()["detail"]) == (422, True)


def test_a_name_means_ones_own_run_first(site: Site, member: httpx.Client) -> None:
    for run_id, owner in (("mine", "me"), ("newer", "bob")):
        enqueue(site.ledger, run_id, JOB, name="train", owner=owner, submitted_at=site.ledger.now())
    assert member.get("/runs/train").json()["run_id"] == "mine"


def test_every_path_is_documented(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/runs", "/v1/runs/{run}", "/v1/runs/{run}/progress", "/v1/runs/{run}/standing",
        "/v1/runs/{run}/report", "/v1/runs/{run}/why", "/v1/runs/{run}/ways",
        "/v1/runs/{run}/cancel", "/v1/runs/{run}/retry", "/v1/rehearsals", "/v1/nodes",
        "/v1/queue", "/v1/top",
        "/v1/limits/{field}", "/v1/me", "/v1/estimates", "/v1/metrics", "/v1/health", "/v1/usage",
        "/v1/runs/{run}/log", "/v1/runs/{run}/outputs",
        "/v1/runs/{run}/outputs/{path}", "/v1/load", "/v1/arrays", "/v1/arrays/{array}",
        "/v1/code", "/v1/code/chunks", "/v1/data", "/v1/data/{name}", "/v1/data/chunks",
        "/v1/data/chunks/{sha256}", "/v1/runs/{run}/session",
        "/v1/arrays/{array}/curves", "/v1/arrays/{array}/cancel", "/v1/arrays/{array}/retry",
        "/v1/traces", "/v1/job-files",
    }  # fmt: skip
    assert all(op["description"] for path in paths.values() for op in path.values())


def test_a_gpu_that_is_held_and_not_used_is_a_warning_on_the_run(
    site: Site, client: httpx.Client
) -> None:
    gpu = Gpu("GPU-0", 0, "V100", 16 * GIB)
    node = Node("node-g", "gpu", Capacity(8.0, 64 * GIB, (gpu,)))
    site.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    demand = Demand(GIB, gpus=1, gpu_memory_bytes=GIB)
    lease = grant_in_term(site.ledger, "r1", "node-g", demand)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    held = TelemetryPoint(moment, "GPU-0", busy_frac=0.0, run_bytes={"r1": 2 * GIB})
    site.ledger.telemetry.append("node-g", [held] * 300)
    found = SilentCheck(site, lease, OverGrants()).check(299.0, Usage())
    assert [each.failure.kind for each in found.begun] == [Silent.OVER_GRANT, Silent.GPU_UNUSED]
    assert not found.end
    warnings = client.get("/runs/r1").json()["warnings"]
    assert sorted(each["kind"] for each in warnings) == ["gpu_unused", "over_grant"]
    assert any("was granted 1.0 GiB" in each["text"] for each in warnings)
    assert 'kind="over_grant"' in client.get("/metrics").text

    assert adopt(site, LINE, {"on_silent_failure": "stop", "silent_grace_s": 0.0})
    again = SilentCheck(site, lease, OverGrants()).check(299.0, Usage())
    assert (again.begun, again.end) == ((), True)
    (stopped,) = [each for each in site.ledger.warnings.of_run("r1") if each.stopped_at]
    assert stopped.failure.kind is Silent.OVER_GRANT


def test_how_far_a_run_is_comes_from_its_follower_not_from_its_points(
    site: Site, client: httpx.Client
) -> None:
    demand = Demand(GIB)
    lease = grant_in_term(site.ledger, "r1", "node-a", demand)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    before = client.get("/runs/r1/progress").json()
    assert (before["done_frac"], before["remaining_s"]) == (None, None)
    site.ledger.progress_snapshots.keep(
        fence_of(site.ledger, "r1"), ProgressSnapshot("r1", 1, NOT_KEPT_YET, 30.0, 0.25, 90.0)
    )
    after = client.get("/runs/r1/progress").json()
    assert after["done_frac"] == 0.25
    assert after["remaining_s"] == pytest.approx(90.0, abs=5.0)
    text = client.get("/metrics").text
    assert 'headway_run_progress_ratio{node="node-a",run="happy-otter",run_id="r1"} 0.25' in text


def test_a_loader_that_starves_the_gpu_is_told_by_the_runs_own_processors(site: Site) -> None:
    gpu = Gpu("GPU-0", 0, "V100", 16 * GIB)
    node = Node("node-g", "gpu", Capacity(8.0, 64 * GIB, (gpu,)))
    site.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    demand = Demand(GIB, cpus=2.0, gpus=1, gpu_memory_bytes=GIB)
    lease = grant_in_term(site.ledger, "r1", "node-g", demand)
    held = TelemetryPoint(
        datetime(2026, 1, 1, tzinfo=UTC), "GPU-0", busy_frac=0.2, run_bytes={"r1": GIB}
    )
    site.ledger.telemetry.append("node-g", [held] * 400)
    watch = SilentCheck(site, lease, OverGrants())
    assert watch.check(300.0, Usage(cpu_s=540.0)).going_on == ()  # one sample is no rate
    assert watch.check(460.0, Usage(cpu_s=700.0)).going_on == ()  # 1.0 of its 2 CPUs
    (starved,) = watch.check(1000.0, Usage(cpu_s=540.0 + 700 * 1.8)).going_on
    assert starved.failure.kind is Silent.STARVED
    assert "uses 2.0 CPUs, with 2 of its own" in starved.failure.text


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
