"""Prefect's API through the gateway, on a live site: what a member can do, see, and not."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.api import MEMBER, bearer, gateway_of
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = pytest.mark.prefect


@pytest.fixture(scope="module")
def ada(process_site: LiveSite) -> Iterator[httpx.Client]:
    """A member of team vision, at Prefect's API behind the gateway."""
    with (
        gateway_of(process_site) as (url, site),
        httpx.Client(
            base_url=f"{url}/api", headers=bearer(site, "ada", "vision", MEMBER), timeout=60
        ) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def theirs(process_site: LiveSite, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of another team that has ended."""
    folder = tmp_path_factory.mktemp("theirs")
    run = process_site.submit(folder, name="canary-of-speech", team="speech")
    process_site.until(run, "Completed")
    return run


FORM = {
    "empirical_policy": {"retries": 0, "retry_delay": 0},
    "state": {"type": "SCHEDULED", "message": "", "state_details": {"scheduled_time": None}},
    "enforce_parameter_schema": True,
    "job_variables": {},
    "work_queue_name": "default",
}
"""What Prefect's form sends beside the parameters."""


NOWHERE = "0190c9a4-1111-4222-8333-444455556666"


def start(ada: httpx.Client, body: dict[str, Any]) -> httpx.Response:
    found = ada.get("/deployments/name/train/default").json()
    return ada.post(f"/deployments/{found['id']}/create_flow_run", json=body)


def state_of(ada: httpx.Client, run: str) -> str:
    name: str = ada.get(f"/flow_runs/{run}").json()["state"]["name"]
    return name


def test_a_member_starts_watches_and_cancels_a_run(
    ada: httpx.Client, process_site: LiveSite
) -> None:
    job = sleeper(400) | {"name": "by-the-gateway", "owner": "", "team": "default"}
    made = start(ada, {"parameters": {"job": job}, "name": "x", "tags": ["team:speech"], **FORM})
    assert made.status_code == 200, made.text
    run = made.json()["id"]
    assert "team:vision" in made.json()["tags"]
    assert "team:speech" not in made.json()["tags"]
    wait_for(lambda: state_of(ada, run) == "Running", lambda: ada.get(f"/flow_runs/{run}").text)
    seen = process_site.show(run)
    assert (seen["owner"], seen["team"]) == ("ada", "vision")
    asked = {"logs": {"flow_run_id": {"any_": [run]}}}
    wait_for(lambda: ada.post("/logs/filter", json=asked).json(), process_site.worker_log)
    wait_for(lambda: ada.post("/task_runs/filter", json={}).json(), process_site.worker_log)
    goes_on = ada.post(f"/flow_runs/{run}/resume", json={})  # it is not suspended
    assert goes_on.json()["status"] != "ACCEPT", goes_on.text
    cancelled = ada.post(f"/flow_runs/{run}/set_state", json={"state": {"type": "CANCELLING"}})
    assert cancelled.json()["status"] == "ACCEPT", cancelled.text
    wait_for(lambda: state_of(ada, run) == "Cancelled", lambda: ada.get(f"/flow_runs/{run}").text)
    process_site.until(run, "Cancelled")
    assert "cancelled by user ada" in process_site.show(run)["exit"]["message"]
    acts = [each["act"] for each in process_site.json("audit", "--actor", "ada")]
    assert acts[:3] == ["run.cancel", "run.resume", "run.submit"]


def test_another_teams_run_does_not_exist(ada: httpx.Client, theirs: str) -> None:
    reads = [
        "flow_runs/filter", "flow_runs/paginate", "task_runs/filter", "artifacts/filter",
        "events/filter", "flows/filter", "deployments/filter", "work_pools/filter",
        "ui/flow_runs/history",
    ]  # fmt: skip
    history = {"history_start": "2020-01-01T00:00:00Z", "history_end": "2090-01-01T00:00:00Z"}
    for path in reads:
        body = {} if path != "flow_runs/history" else history
        answer = ada.post(f"/{path}", json=body)
        assert answer.status_code == 200, f"{path} {answer.text}"
        assert theirs not in answer.text
        assert "canary" not in answer.text
    named = {"flow_runs": {"name": {"like_": "canary"}}}
    for path in ("flow_runs/count", "flows/count", "deployments/count", "task_runs/count"):
        assert ada.post(f"/{path}", json=named).json() == 0, path
    either = {"flow_runs": {"operator": "or_", "name": {"like_": "canary"}}}
    assert ada.post("/flow_runs/filter", json=either).status_code == 403
    for path in (f"flow_runs/{theirs}", f"flow_runs/{theirs}/graph-v2"):
        assert ada.get(f"/{path}").status_code == 404
    logs = {"logs": {"flow_run_id": {"any_": [theirs]}}}
    assert ada.post("/logs/filter", json=logs).status_code == 404
    assert ada.post("/logs/filter", json={}).status_code == 403
    counted = ada.post("/ui/flow_runs/count-task-runs", json={"flow_run_ids": [theirs]})
    assert counted.status_code == 404
    own = start(ada, {"parameters": {"job": sleeper(1)}}).json()["id"]
    # Prefect does not read these ids in a question about logs, so it would be about all runs.
    assert ada.post("/logs/filter", json={"flow_run_ids": [own]}).status_code == 403
    own_and_theirs = {"logs": {"flow_run_id": {"any_": [own]}}, "flow_run_ids": [theirs]}
    counted = ada.post("/ui/flow_runs/count-task-runs", json=own_and_theirs)
    assert counted.status_code == 404, counted.text
    for state in ("CANCELLING", "SCHEDULED"):
        body = {"state": {"type": state, "name": "AwaitingRetry"}}
        assert ada.post(f"/flow_runs/{theirs}/set_state", json=body).status_code == 404
    assert ada.post(f"/flow_runs/{theirs}/resume", json={}).status_code == 404


def test_their_artifacts_and_tasks_are_not_found_by_id_either(
    ada: httpx.Client, theirs: str, process_site: LiveSite
) -> None:
    of_theirs = {"flow_runs": {"id": {"any_": [theirs]}}}
    for kind in ("artifacts", "task_runs"):
        (first, *_) = process_site.call("POST", f"{kind}/filter", of_theirs)
        answer, nowhere = (ada.get(f"/{kind}/{each}") for each in (first["id"], NOWHERE))
        assert (answer.status_code, nowhere.status_code) == (404, 404)
        assert answer.text.replace(first["id"], NOWHERE) == nowhere.text  # not even that it is


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"job_variables": {"command": "sh -c id"}}, "job_variables"),
        ({"job_variables": {"env": {"LD_PRELOAD": "/x.so"}}}, "job_variables"),
        ({"infrastructure_document_id": "0190c9a4-1111-4222-8333-444455556666"}, "infrastructure"),
        ({"parent_task_run_id": "0190c9a4-1111-4222-8333-444455556666"}, "parent_task_run_id"),
        ({"idempotency_key": "theirs"}, "idempotency_key"),
        ({"parameters": {"job": sleeper(), "attempt": 3}}, "parameters"),
        ({"parameters": {"job": sleeper(team="speech")}}, "it comes from your token"),
        ({"parameters": {"job": sleeper(owner="root")}}, "it comes from your token"),
        ({"parameters": {"job": sleeper() | {"retries": -1}}}, "retries: got -1"),
        (
            {"state": {"type": "RUNNING", "state_details": {"scheduled_time": "2030-01-01"}}},
            "sched",
        ),
        ({"state": "x", "job_variables": {"command": "id"}}, "job_variables"),
        ({"state": {"state_details": ["x"]}, "labels": 1, "version": "x"}, "version"),
        ({"work_queue_name": {"x": 1}}, "work_queue_name: got"),
    ],
)
def test_a_run_is_made_of_a_job_and_nothing_else(
    ada: httpx.Client, more: dict[str, Any], named: str
) -> None:
    answer = start(ada, {"parameters": {"job": sleeper()}} | more)
    assert answer.status_code in {403, 422}, answer.text
    assert named in answer.json()["detail"]


def test_other_deployments_are_not_started(ada: httpx.Client) -> None:
    for name in ("estimate/estimate", "rank/gang", "retrain-estimators/nightly"):
        found = ada.get(f"/deployments/name/{name}").json()
        path = f"/deployments/{found['id']}/create_flow_run"
        answer = ada.post(path, json={"parameters": {"job": sleeper()}})
        assert answer.status_code == 403
        assert "only train/default is started here" in answer.json()["detail"]


def test_members_see_the_one_deployment_that_they_may_start(
    ada: httpx.Client, process_site: LiveSite
) -> None:
    (found,) = ada.post("/deployments/filter", json={}).json()
    assert (found["name"], found["flow_id"] != "") == ("default", True)
    named = {"deployments": {"name": {"like_": "nightly"}}}
    assert ada.post("/deployments/filter", json=named).json() == []
    everybodys = process_site.call("POST", "deployments/filter", {})
    others = [each["id"] for each in everybodys]
    assert len(others) > 1
    flows = {"flow_ids": [each["flow_id"] for each in everybodys]}
    counted = ada.post("/ui/flows/count-deployments", json=flows).json()
    assert counted.keys() == {found["flow_id"]}
    named = {"deployments": {"id": {"any_": [each for each in others if each != found["id"]]}}}
    assert ada.post("/deployments/paginate", json=named).json()["count"] == 0
    assert (
        ada.post("/deployments/count", json={"deployments": {"id": {"any_": others}}}).json() == 1
    )


def test_what_an_operator_put_into_a_deployment_is_told_to_no_member(
    ada: httpx.Client, process_site: LiveSite
) -> None:
    flow = process_site.call("POST", "flows/", {"name": "canary-flow"})
    made = {"name": "canary", "flow_id": flow["id"], "parameters": {"password": "canary-secret"}}
    more = {"path": "/canary-path", "entrypoint": "canary.py:f", "description": "canary-words"}
    deployment = process_site.call("POST", "deployments/", made | more)
    for path in (deployment["id"], "name/canary-flow/canary"):
        answer = ada.get(f"/deployments/{path}")
        assert (answer.status_code, answer.json()["name"]) == (200, "canary")
        assert not [each for each in ("secret", "path", "py:f", "words") if f"canary-{each}" in
                    answer.text or f"canary.{each}" in answer.text]  # fmt: skip
    assert ada.get("/deployments/name/train/default").json()["parameter_openapi_schema"]
    assert ada.get("/deployments/name/canary-flow/none").status_code == 404


def test_what_is_the_operators_is_refused_in_one_line(
    ada: httpx.Client, process_site: LiveSite, tmp_path: Path
) -> None:
    block = process_site.call("GET", "block_types/slug/headway-line/block_documents/name/site")
    for method, path in (
        ("PATCH", f"/block_documents/{block['id']}"), ("GET", f"/block_documents/{block['id']}"),
        ("POST", "/deployments/"), ("GET", "/admin/version"), ("POST", "/admin/database/clear"),
        ("DELETE", "/work_pools/gpu"), ("POST", "/block_types/filter"), ("HEAD", "/health"),
        ("OPTIONS", "/flow_runs/filter"), ("PUT", "/flow_runs/filter"),
    ):  # fmt: skip
        answer = ada.request(method, path, json={} if method.startswith("P") else None)
        assert answer.status_code == 403, (method, path, answer.text)
        assert "\n" not in answer.text
    assert ada.get("/admin/settings").json() == {}
    assert process_site.call("GET", f"block_documents/{block['id']}")["data"] == block["data"]


@pytest.mark.parametrize(
    "target",
    [
        "/api//admin/settings", "//api/admin/version", "/api/../api/admin/version",
        "/api/flow_runs/../admin/version", "/api/flow_runs/%2e%2e/admin/version",
        "/api%2Fadmin%2Fversion", "/api/health%2F..%2Fadmin%2Fversion", "/%61pi/admin/version",
        "/api/health/", "/api/health;x", "/api/admin/version?x=/api/health", "/./api/admin/version",
        "http://127.0.0.1/api/admin/version", "/assets/../api/admin/version", "/docs",
        "/v2/../docs", "/assets/..%2f..%2fapi/admin/version", "/api/health%00",
        "/API/admin/version",
    ],
)  # fmt: skip
def test_no_path_leads_around_the_table(ada: httpx.Client, target: str) -> None:
    """As it stands in the request: a client library would put it right."""
    address = urlsplit(str(ada.base_url))
    request = (
        f"GET {target} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
        f"Authorization: {ada.headers['authorization']}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(request.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    status, body = int(answer.split()[1]), answer.partition("\r\n\r\n")[2]
    assert status in {400, 403, 404} or body == "{}", answer[:500]
    assert "3.8" not in body
    assert "swagger" not in body.lower()


def test_a_browser_logs_in_and_keeps_the_token_from_scripts(
    ada: httpx.Client, process_site: LiveSite
) -> None:
    root = str(ada.base_url).removesuffix("/api/")
    wants_a_page = {"Accept": "text/html"}
    token = ada.headers["authorization"].removeprefix("Bearer ")
    with httpx.Client(base_url=root, timeout=60, headers={"Origin": root}) as browser:
        sent = browser.get("/runs", headers=wants_a_page)
        assert (sent.status_code, sent.headers["location"]) == (303, "/v1/login?next=%2Fruns")
        assert "Your token" in browser.get("/v1/login").text
        assert browser.get("/ui-settings").status_code == 401
        for wrong in ("", "hwt_" + "x" * 43):
            assert browser.post("/v1/login", data={"token": wrong}).status_code == 401
        done = browser.post("/v1/login", data={"token": token})
        assert (done.status_code, done.headers["location"]) == (303, "/headway")
        cookie = done.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/ui-settings").json()["auth"] is None
        assert "<script" in browser.get("/runs", headers=wants_a_page, follow_redirects=True).text
        assert browser.post("/api/flow_runs/count", json={}).status_code == 200
    with httpx.Client(base_url=root, headers={"Origin": "http://page.example"}) as page:
        assert page.post("/v1/login", data={"token": token}).status_code == 403
