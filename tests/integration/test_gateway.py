"""The gateway on a real ledger: who comes in, what they see, and whose their runs are."""

import itertools
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import InvalidInput, RunUnknown
from headway.gateway.app import HEALTH, create_app
from headway.gateway.door import Allowed
from headway.gateway.tokens import have_local_token
from headway.model.access import Scope
from headway.model.lease import Demand
from headway.model.node import Capacity, Gpu, Node
from headway.prefect.listed_run import ListedRun
from headway.site import POLICY, Site
from headway.this_node import adopt
from headway.units import GIB
from tests.support.api import MEMBER, bearer, serving, site_in
from tests.support.leading import grant_in_term

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OURS, THEIRS = "11111111-run", "22222222-run"


class FakePrefect:
    """What the gateway asks of Prefect's server."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._by_key: dict[str, str] = {}
        self._numbers = itertools.count()

    def destination(self, pool: str | None, queue: str | None) -> dict[str, Any]:
        if pool not in (None, "gpu"):
            raise InvalidInput("pool", pool, "give a work pool that a node has joined")
        return {"work_pool_name": "gpu", "work_queue_name": "default"}

    def has_secret(self, name: str) -> bool:
        return False

    def submit(
        self, parameters: Mapping[str, Any], *, name: str, key: str | None, **more: Any
    ) -> Any:
        self.calls.append(("submit", parameters, key, more))
        new = f"new-{next(self._numbers)}"
        run_id = self._by_key.setdefault(key, new) if key else new
        return SimpleNamespace(run_id=run_id, name=name)

    def run(self, run_id: str) -> ListedRun:
        raise RunUnknown(run_id)

    def runs(self, limit: int, **filters: Any) -> list[ListedRun]:
        state = ("SCHEDULED", "AwaitingHeadroom", "", NOON.isoformat(), {})
        return [ListedRun(run_id, "digits", *state) for run_id in (OURS, THEIRS)]

    def these(self, run_ids: list[str]) -> dict[str, ListedRun]:
        return {}

    def cancel(self, run_id: str, message: str) -> str:
        self.calls.append(("cancel", run_id, message))
        return "Cancelling"

    def retry(self, run_id: str, message: str) -> str:
        self.calls.append(("retry", run_id, message))
        return "AwaitingRetry"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("gateway")
    made = site_in(folder)
    gpus = (Gpu("GPU-a", 0, "NVIDIA H200", 80 * GIB),)
    node = Node("node-a", "gpu", Capacity(8.0, 64 * GIB, gpus))
    made.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    for run_id, owner, team in ((OURS, "ada", "vision"), (THEIRS, "eve", "speech")):
        made.ledger.runs.enqueue(
            run_id, JOB | {"name": f"of-{team}"}, name="digits", owner=owner, team=team, pool="gpu",
            priority=0, submitted_at=NOON,
        )  # fmt: skip
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def prefect() -> FakePrefect:
    return FakePrefect()


@pytest.fixture(scope="module")
def url(site: Site, prefect: FakePrefect) -> Iterator[str]:
    with serving(site, prefect) as address:
        yield address


@pytest.fixture(scope="module")
def anybody(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def ada(site: Site, url: str) -> Iterator[httpx.Client]:
    """A member of team vision."""
    headers = bearer(site, "ada", "vision", MEMBER)
    with httpx.Client(base_url=f"{url}/v1", headers=headers, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def root(site: Site, url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{url}/v1", headers=bearer(site), timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def tokens(site: Site) -> Iterator[dict[str, str]]:
    """Headers of several operators in turn, so that none asks too often."""
    return itertools.cycle([bearer(site) for _ in range(5)])


def routes(site: Site) -> list[tuple[str, str]]:
    paths = create_app(site, FakePrefect()).openapi()["paths"]
    return [(method.upper(), path) for path, ways in paths.items() for method in ways]


def test_every_route_but_health_wants_a_token(site: Site, anybody: httpx.Client) -> None:
    asked = [*routes(site), ("GET", "/"), ("GET", "/v1/openapi.json"), ("GET", "/v1/docs")]
    asked += [("GET", f"{HEALTH}/"), ("GET", "/v1//health"), ("GET", "/v1/health/../runs")]
    seen = {}
    for method, path in asked:
        if path == HEALTH:
            continue
        answer = anybody.request(method, path, content=b"{}" if method == "POST" else None)
        seen[method, path] = answer.status_code
    assert set(seen.values()) <= {401, 429}, seen
    assert anybody.get(HEALTH).json() == {"status": "ok"}


def test_a_refusal_says_how_to_come_in_and_is_not_given_for_ever(site: Site) -> None:
    with serving(site, FakePrefect()) as address, httpx.Client(base_url=address) as client:
        answers = [client.get("/v1/runs", headers={"Authorization": "Bearer x"}) for _ in range(40)]
    first, last = answers[0], answers[-1]
    assert (first.status_code, first.headers["www-authenticate"]) == (401, "Bearer")
    assert "an operator makes one with `headway user add`" in first.json()["detail"]
    assert last.status_code == 429
    assert int(last.headers["retry-after"]) >= 1
    assert "nothing was done; try again in" in last.json()["detail"]


def test_every_route_but_health_asks_for_a_scope(site: Site) -> None:
    """A route that was added without one would be everybody's who has any token."""
    without = set()
    for route in create_app(site, FakePrefect()).routes:
        dependant = getattr(route, "dependant", None)
        if dependant is None or not route.include_in_schema:
            continue
        if not any(isinstance(each.call, Allowed) for each in dependant.dependencies):
            without.add(route.path)
    assert without == {HEALTH}


def test_a_member_sees_only_its_own_teams_runs(ada: httpx.Client, root: httpx.Client) -> None:
    assert {run["team"] for run in ada.get("/runs").json()} == {"vision"}
    assert {run["team"] for run in root.get("/runs").json()} == {"vision", "speech"}
    assert ada.get("/runs/digits").json()["run_id"] == OURS  # of two of that name
    for name in (THEIRS, THEIRS[:6]):
        assert ada.get(f"/runs/{name}").status_code == 404
        assert ada.get(f"/runs/{name}/progress").status_code == 404
        assert root.get(f"/runs/{name}").status_code == 200


def test_of_another_teams_run_only_its_place_shows(
    ada: httpx.Client, root: httpx.Client, site: Site
) -> None:
    text = ada.get("/queue").text + ada.get("/nodes").text
    assert all(word not in text for word in (THEIRS, "eve", "speech"))
    assert any(view["name"] is None and view["position"] for view in ada.get("/queue").json())
    grant_in_term(site.ledger, THEIRS, "node-a", Demand(GIB, gpus=1, gpu_memory_bytes=GIB))
    assert THEIRS not in ada.get("/nodes").text + ada.get("/top").text
    (node,) = root.get("/nodes").json()
    assert (node["runs"], [run["run_id"] for run in node["gpus"][0]["runs"]]) == (
        [THEIRS],
        [THEIRS],
    )


@pytest.mark.parametrize(
    ("scopes", "asked", "missing"),
    [
        ({Scope.SUBMIT}, "GET /v1/runs", "watch"),
        ({Scope.WATCH}, "POST /v1/runs", "submit"),
        ({Scope.WATCH}, f"POST /v1/runs/{OURS}/cancel", "submit"),
        (MEMBER, "GET /v1/metrics", "operate"),
    ],
)
def test_a_scope_that_is_missing_is_named(
    site: Site, anybody: httpx.Client, scopes: set[Scope], asked: str, missing: str
) -> None:
    method, path = asked.split()
    body = {"job": JOB} if method == "POST" else None
    headers = bearer(site, "ada", "vision", scopes)
    answer = anybody.request(method, path, headers=headers, json=body)
    assert answer.status_code == 403
    assert f"needs a token with the scope {missing}" in answer.json()["detail"]


def test_a_revoked_token_is_refused_from_the_next_request_on(
    site: Site, anybody: httpx.Client
) -> None:
    headers = bearer(site, "mallory", "vision", MEMBER)
    assert anybody.get("/v1/runs", headers=headers).status_code == 200
    site.ledger.access_tokens.revoke("mallory", actor="root")
    assert anybody.get("/v1/runs", headers=headers).status_code in {401, 429}


def test_owner_and_team_come_from_the_token(
    ada: httpx.Client, site: Site, prefect: FakePrefect
) -> None:
    made = ada.post("/runs", json={"job": JOB})
    assert made.status_code == 200, made.text
    record = site.ledger.runs.get(made.json()["run_id"])
    assert (record.owner, record.team) == ("ada", "vision")
    _, parameters, _, more = prefect.calls[-1]
    assert (parameters["job"]["owner"], parameters["job"]["team"]) == ("ada", "vision")
    assert more["tags"] == ["team:vision"]
    (entry,) = site.ledger.audit_log.newest(1)
    assert (entry.actor, entry.act, entry.subject) == ("ada", "run.submit", "digits")


@pytest.mark.parametrize("claimed", [{"owner": "eve"}, {"team": "speech"}, {"team": None}])
def test_a_job_of_another_owner_or_team_is_refused_in_words(
    ada: httpx.Client, prefect: FakePrefect, claimed: dict[str, Any]
) -> None:
    before = len(prefect.calls)
    answer = ada.post("/runs", json={"job": JOB | claimed})
    assert answer.status_code == 422
    assert "it comes from your token, which says" in answer.json()["detail"]
    assert len(prefect.calls) == before
    assert ada.post("/runs", json={"job": JOB | {"owner": "ada", "team": "vision"}}).is_success


def test_rules_of_a_team_hold_where_its_members_submit(site: Site, ada: httpx.Client) -> None:
    """Images, Secret blocks and ports: of one's own team, and none of another's."""
    vision = {"images": ["python:3.11"], "secret_prefixes": ["job-vision-"], "ports": "30000-30999"}
    speech = {"secret_prefixes": ["job-speech-"], "ports": "31000-31999"}
    assert adopt(site, POLICY, {"teams": {"vision": vision, "speech": speech}})
    refused = [
        ({"image": "python:3.12"}, "image: got "),
        ({"secrets": {"KEY": "job-speech-key"}}, "secrets.KEY: got "),
        ({"secrets": {"KEY": "job-key"}}, "name a block job-vision-"),
        ({"ports": [31_000]}, "ports: got 31000"),
        ({"ports": [6006]}, "give ports of team vision"),
    ]
    for changes, said in refused:
        answer = ada.post("/runs", json={"job": JOB | changes})
        assert answer.status_code == 422, changes
        assert said in answer.json()["detail"]
    assert ada.post("/runs", json={"job": JOB | {"ports": [30_000]}}).is_success
    adopt(site, POLICY, {})


def test_a_python_becomes_the_image_that_the_site_names_for_it(
    site: Site, ada: httpx.Client
) -> None:
    named = {"3.9": "python:3.9-slim", "3.11": "registry.example.org/base/python:3.11"}
    assert adopt(site, POLICY, {"base_images": named, "images": ["registry.example.org/base/*"]})
    asked = {name: value for name, value in JOB.items() if name != "image"}
    made = ada.post("/runs", json={"job": asked | {"python": "3"}}).json()
    kept = site.ledger.runs.get(made["run_id"]).job
    assert made["image"] == kept["image"] == named["3.11"]
    assert kept["python"] == ""
    for python, said in [
        ("3.9", "this site names no such Python: give 3.11, or an image"),
        ("3.12", "give 3.11, or an image"),
        ("4", "give a version in quotes"),
    ]:
        answer = ada.post("/runs", json={"job": asked | {"python": python}})
        assert (answer.status_code, said in answer.text) == (422, True), answer.text
    both = ada.post("/runs", json={"job": JOB | {"python": "3.11"}})
    assert "give it or image" in both.json()["detail"]
    adopt(site, POLICY, {})


def test_a_key_of_another_user_gives_no_run_of_theirs(
    site: Site, ada: httpx.Client, anybody: httpx.Client
) -> None:
    wanted = {"job": JOB, "key": "nightly"}
    first, again = (ada.post("/runs", json=wanted).json()["run_id"] for _ in range(2))
    eve = bearer(site, "eve", "speech", MEMBER)
    theirs = anybody.post("/v1/runs", headers=eve, json=wanted).json()["run_id"]
    assert first == again != theirs


def test_only_ones_own_runs_are_changed(
    site: Site, ada: httpx.Client, root: httpx.Client, anybody: httpx.Client, prefect: FakePrefect
) -> None:
    mate = bearer(site, "bob", "vision", MEMBER)
    refused = anybody.post(f"/v1/runs/{OURS}/cancel", headers=mate, json={})
    assert (refused.status_code, "is ada's" in refused.json()["detail"]) == (403, True)
    assert ada.post(f"/runs/{THEIRS}/cancel", json={}).status_code == 404
    assert ada.post(f"/runs/{OURS}/retry", json={}).status_code == 422  # it has not ended
    by_name = root.post("/runs/digits/cancel", json={})  # two teams have one of that name
    assert (by_name.status_code, "give its id" in by_name.json()["detail"]) == (422, True)
    assert all(call[0] == "submit" for call in prefect.calls)
    assert ada.post(f"/runs/{OURS}/cancel", json={}).json()["state"] == "Cancelling"
    assert root.post(f"/runs/{THEIRS}/cancel", json={}).is_success
    assert prefect.calls[-2:] == [
        ("cancel", OURS, "cancelled by user ada (gateway)"),
        ("cancel", THEIRS, "cancelled by user root (gateway)"),
    ]
    acts = [(each.actor, each.act) for each in site.ledger.audit_log.newest(20, subject=OURS)]
    assert acts == [("ada", "run.cancel")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://page.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Host": "page.example"}, 400),
        ({}, 200),
    ],
)
def test_pages_of_other_origins_may_not_ask(
    ada: httpx.Client, headers: dict[str, str], status: int
) -> None:
    answer = ada.get("/runs", headers=headers)
    assert answer.status_code == status
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert ada.options("/runs", headers=headers | {"Host": "127.0.0.1"}).status_code in {403, 405}


def test_a_cookie_alone_changes_nothing_without_its_page(
    site: Site, anybody: httpx.Client, url: str
) -> None:
    token = bearer(site, "ada", "vision", MEMBER)["Authorization"].removeprefix("Bearer ")
    headers = {"Cookie": f"headway_token={token}"}
    assert anybody.get("/v1/runs", headers=headers).status_code == 200
    refused = anybody.post("/v1/runs", headers=headers, json={"job": JOB})
    assert (refused.status_code, "which page asks" in refused.json()["detail"]) == (403, True)
    own = headers | {"Origin": url}
    assert anybody.post("/v1/runs", headers=own, json={"job": JOB}).status_code == 200


def test_this_machines_operator_finds_a_token(site: Site, anybody: httpx.Client) -> None:
    token = have_local_token(site.settings, site.ledger)
    assert have_local_token(site.settings, site.ledger) == token  # it is made once
    assert site.settings.token_file.stat().st_mode & 0o077 == 0
    headers = {"Authorization": f"Bearer {token}"}
    assert anybody.get("/v1/metrics", headers=headers).status_code == 200
    site.settings.token_file.write_text("half a tok")
    assert have_local_token(site.settings, site.ledger) != token


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=10,
)  # fmt: skip
FIELDS = st.sampled_from(
    ["job", "key", "pool", "queue", "budget", "deadline_s", "prefer", "name", "image", "command",
     "resources", "dataset", "env", "owner", "retries", "secrets", "limit"]
)  # fmt: skip
BODIES = JSON | st.dictionaries(
    FIELDS, JSON | st.dictionaries(FIELDS, JSON, max_size=6), max_size=5
)
PARTS = st.sampled_from(
    ["..", ".", "%2e%2e", "%2F", "%00", "%ED%A0%80", OURS, "'", "%25", "a" * 300]
)


class SlowPrefect(FakePrefect):
    """Answers a question only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def ask(self, method: str, path: str, body: object = None, **_: Any) -> tuple[int, Any]:
        self.goes_on.wait(60)
        return 200, []


def test_questions_that_prefect_is_slow_at_hold_nobody_else_up(site: Site) -> None:
    prefect = SlowPrefect()
    ada, bob = (bearer(site, name, "vision", MEMBER) for name in ("ada", "bob"))
    with (
        serving(site, prefect) as address,  # type: ignore[arg-type]
        httpx.Client(base_url=address, timeout=30) as client,
        ThreadPoolExecutor(60) as pool,
    ):
        path = "/api/flow_runs/filter"
        asked = [pool.submit(client.post, path, json={}, headers=ada) for _ in range(60)]
        try:
            # The gateway has read those sixty once it has answered to somebody who came later.
            for _ in range(3):
                assert client.get("/v1/nodes", headers=bob).status_code == 200
        finally:
            prefect.goes_on.set()
        assert {each.result().status_code for each in asked} == {200}


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_nothing_that_is_asked_breaks_the_gateway(
    site: Site, anybody: httpx.Client, tokens: Iterator[dict[str, str]], data: st.DataObject
) -> None:
    """What the OpenAPI allows, and what it does not, is answered with no 5xx."""
    method, path = data.draw(st.sampled_from(routes(site)))
    path = path.replace("{run}", data.draw(PARTS | st.just("digits")))
    query = data.draw(st.dictionaries(st.sampled_from(["limit", "x"]), st.text(max_size=5)))
    body = data.draw(BODIES) if method == "POST" else None
    answer = anybody.request(method, path, params=query, json=body, headers=next(tokens))
    assert answer.status_code < 500, answer.text
    assert answer.status_code not in {401, 429}
    if answer.is_client_error:
        assert "\n" not in answer.text
