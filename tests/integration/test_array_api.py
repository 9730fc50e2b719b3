"""Arrays at the gateway: whose they are, what is refused, and what a cancel does in the ledger."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from benchmarks.answers import ANSWERS, misfits
from headway.ledger.records import ArrayRecord
from headway.model.array import Array
from headway.model.node import Capacity, Node
from headway.model.run import RunState
from headway.policy.settings import LINE
from headway.site import Site
from headway.this_node import adopt
from headway.units import GIB
from tests.support.api import MEMBER, bearer, serving, site_in

JOB = {"name": "sweep", "image": "trainer:1", "command": ["train", "{lr}"]}
Clients = Callable[[str, str], httpx.Client]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = site_in(tmp_path)
    node = Node("node-a", made.settings.pool, Capacity(8.0, 64 * GIB))
    made.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    yield made
    made.ledger.close()


@pytest.fixture
def client(site: Site) -> Iterator[Clients]:
    opened: list[httpx.Client] = []
    with serving(site) as url:

        def as_user(user: str, team: str) -> httpx.Client:
            headers = bearer(site, user, team, MEMBER)
            opened.append(httpx.Client(base_url=f"{url}/v1", headers=headers, timeout=60))
            return opened[-1]

        yield as_user
        for each in opened:
            each.close()


@pytest.fixture
def array(site: Site) -> ArrayRecord:
    return site.ledger.arrays.add(
        JOB, Array({"lr": (0.1, 0.2, 0.3)}), name="sweep", owner="ada", team="vision",
        pool=site.settings.pool, queue="default", key=None, submitted_at=site.ledger.now(),
    )  # fmt: skip


def test_a_team_sees_its_own_arrays(client: Clients, array: ArrayRecord) -> None:
    ada, bob = client("ada", "vision"), client("bob", "language")
    (line,) = ada.get("/arrays").json()
    assert (line["array_id"], line["size"], line["waiting"]) == (array.array_id, 3, 3)
    assert ada.get("/arrays/sweep").json()["members"] == []
    assert bob.get("/arrays").json() == []
    for path in ("sweep", array.array_id):
        assert bob.get(f"/arrays/{path}").status_code == 404
        assert bob.get(f"/arrays/{path}/curves").status_code == 404
        assert bob.post(f"/arrays/{path}/cancel", json={}).status_code == 404
        assert bob.post(f"/arrays/{path}/retry", json={}).status_code == 404


def test_the_first_of_many_members_can_be_asked_for(
    site: Site, client: Clients, array: ArrayRecord
) -> None:
    ada = client("ada", "vision")
    for index in (1, 2):
        site.ledger.arrays.join(array.array_id, index, str(uuid4()))
    first = ada.get("/arrays/sweep?limit=1").json()
    assert [each["parameters"] for each in first["members"]] == [{"lr": 0.1}]
    assert (first["size"], first["waiting"]) == (3, 3)
    assert len(ada.get("/arrays/sweep").json()["members"]) == 2
    curves = ada.get("/arrays/sweep/curves").json()
    assert misfits(ANSWERS["GET /v1/arrays/{array}/curves"], curves) == []


def test_only_its_owner_changes_it(client: Clients, array: ArrayRecord) -> None:
    mate = client("eve", "vision")
    assert mate.get(f"/arrays/{array.array_id}").status_code == 200
    for act in ("cancel", "retry"):
        answer = mate.post(f"/arrays/{array.array_id}/{act}", json={})
        assert answer.status_code == 403
        assert "ask its owner" in answer.text


def test_a_cancelled_array_ends_its_members(
    site: Site, client: Clients, array: ArrayRecord
) -> None:
    run_id = str(uuid4())
    site.ledger.arrays.join(array.array_id, 1, run_id)
    ada = client("ada", "vision")
    for ended_now in (1, 0):  # asked again, it says the same
        view = ada.post("/arrays/sweep/cancel", json={}).json()
        assert (view["state"], view["cancelled"], view["waiting"]) == ("Cancelled", 3, 0)
        assert view["ended_now"] == ended_now
    record = site.ledger.runs.get(run_id)
    assert record.state is RunState.ENDED
    assert record.exit is not None
    assert record.exit.message == "cancelled by user ada (gateway)"
    assert site.ledger.arrays.due(site.settings.pool) == []


def test_members_are_listed_on_demand(site: Site, client: Clients, array: ArrayRecord) -> None:
    run_id = str(uuid4())
    site.ledger.arrays.join(array.array_id, 1, run_id)
    ada = client("ada", "vision")
    assert ada.get("/runs").json() == []
    (member,) = ada.get("/runs", params={"members": True}).json()
    assert (member["run_id"], member["name"]) == (run_id, "sweep-1")
    (line,) = ada.get("/queue").json()
    assert (line["array_id"], line["array_waiting"]) == (array.array_id, 3)
    (seen,) = client("bob", "language").get("/queue").json()
    assert [seen[key] for key in ("name", "array_id", "array_waiting")] == [None] * 3


def test_why_an_array_waits_is_why_its_first_waiting_member_does(
    site: Site, client: Clients, array: ArrayRecord
) -> None:
    ada, bob = client("ada", "vision"), client("bob", "language")
    none = ada.get("/runs/sweep/why")
    assert (none.status_code, "no member waits now" in none.text) == (422, True)
    site.ledger.arrays.join(array.array_id, 1, str(uuid4()))
    for name in ("sweep", array.array_id):
        assert ada.get(f"/runs/{name}/why").json()["name"] == "sweep-1"
        assert bob.get(f"/runs/{name}/why").status_code == 404


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "array: got nothing"),
        ({"array": {"parameters": {"lr": []}}}, "array.parameters.lr"),
        ({"array": {"parameters": {"lr": ["x"]}}, "image": 7}, "image"),
        ({"array": {"parameters": {"lr": [""]}}, "command": ["{lr}"]}, "command[0]"),
        # Two thousand members, each of them eight times what a job may have.
        (
            {"array": {"parameters": {"lr": ["", "x" * 200], "seed": "1..1000"}}}
            | {"command": ["train", *["{lr}" * 100] * 100]},
            "array: got",
        ),
    ],
)
def test_what_is_refused(client: Clients, given: dict[str, Any], said: str) -> None:
    answer = client("ada", "vision").post("/arrays", json={"job": JOB | given})
    assert answer.status_code == 422, answer.text
    assert said in answer.text


def test_no_more_wait_than_a_user_may_have(site: Site, client: Clients, array: ArrayRecord) -> None:
    users = {"ada": {"max_waiting": 4}}
    adopt(site, LINE, {"teams": {"vision": {"max_waiting": 9, "users": users}}})
    ada, bob, arrays = client("ada", "vision"), client("bob", "vision"), site.ledger.arrays
    alone = JOB | {"command": ["train"]}

    def wait_too() -> None:
        site.ledger.runs.enqueue(
            str(uuid4()), alone, name="own", owner="ada", team="vision", pool="gpu",
            queue="default", priority=0, submitted_at=site.ledger.now(),
        )  # fmt: skip

    two = JOB | {"array": {"parameters": {"lr": [1, 2]}}}
    refused = ada.post("/arrays", json={"job": two})
    assert refused.status_code == 422
    assert "user ada may have 4 waiting" in refused.text
    assert arrays.join(array.array_id, 1, str(uuid4()))
    assert arrays.waiting("vision", "ada") == (3, 3)
    arrays.cancel(array.array_id, "by user ada")
    assert arrays.waiting("vision", "ada") == (1, 1)
    assert arrays.waiting("speech", "ada") == (0, 0)
    wait_too()
    wait_too()
    again = ada.post(f"/arrays/{array.array_id}/retry", json={})
    assert again.status_code == 422
    assert "has 3" in again.text
    assert arrays.get(array.array_id).cancelled_at is not None
    wait_too()
    assert "may have 4 waiting" in ada.post("/runs", json={"job": alone}).text
    assert "may have 4 waiting" not in bob.post("/runs", json={"job": alone}).text
