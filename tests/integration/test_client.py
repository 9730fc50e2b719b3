"""The client against the gateway's own application: what it sends, and what errors become."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from headway.client import Client
from headway.credentials import Address
from headway.errors import (
    GatewayRefused,
    GatewayUnreachable,
    HeadwayError,
    InvalidInput,
    RunUnknown,
)
from headway.gateway.tokens import issue
from headway.model.access import Scope
from headway.model.node import Capacity, Node
from headway.site import Site
from headway.units import GIB
from tests.ports.clock import FakeClock
from tests.support.api import MEMBER, serving, site_in
from tests.support.on_ledger import enqueue

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
MEBIBYTE = bytes(1 << 20)
Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("client")
    made = site_in(folder)
    node = Node("node-a", "gpu", Capacity(8.0, 64 * GIB))
    made.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    enqueue(made.ledger, "r1", JOB, name="happy-otter", owner="ada", team="vision")
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def url(site: Site) -> Iterator[str]:
    with serving(site) as address:
        yield address


def token_of(site: Site, user: str, team: str, *scopes: Scope) -> str:
    made, _ = issue(
        site.ledger, user=user, team=team, scopes=scopes, lifetime_s=3600.0, actor="tests"
    )
    return made


@pytest.fixture(scope="module")
def ada(site: Site, url: str) -> Iterator[Client]:
    """A member of team vision."""
    with Client(Address(url, token_of(site, "ada", "vision", *MEMBER))) as client:
        yield client


def test_what_it_reads_is_what_the_gateway_has(ada: Client) -> None:
    assert ada.run("happy-otter")["job"] == JOB
    assert [node["node"] for node in ada.nodes()] == ["node-a"]
    assert [run["run_id"] for run in ada.queue()] == ["r1"]


@pytest.mark.parametrize("run", ["", ".", "..", "nobody", "é%00", "\udcff", "x" * 3000])
def test_a_run_that_is_not_there_is_the_same_error_as_in_the_ledger(ada: Client, run: str) -> None:
    with pytest.raises(RunUnknown):
        ada.run(run)


def test_a_slash_in_a_name_leads_to_no_other_path(ada: Client) -> None:
    with pytest.raises(InvalidInput, match="give its id"):
        ada.run("r1/../../nodes")


def test_bad_input_comes_back_with_its_field(ada: Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        ada.submit(JOB | {"retries": -1})
    assert (caught.value.field, caught.value.value) == ("retries", -1)
    with pytest.raises(InvalidInput, match="comes from your token"):
        ada.submit(JOB | {"owner": "eve"})


def test_a_refusal_is_the_gateways_own_line(site: Site, url: str) -> None:
    with (
        Client(Address(url, "hwt_wrong")) as nobody,
        pytest.raises(GatewayRefused, match="no valid token") as caught,
    ):
        nobody.nodes()
    assert caught.value.status == 401
    watcher = Address(url, token_of(site, "eve", "vision", Scope.WATCH))
    with Client(watcher) as eve, pytest.raises(GatewayRefused, match="scope submit"):
        eve.cancel("r1")


def test_where_nobody_listens_the_next_step_is_named() -> None:
    with (
        Client(Address("http://127.0.0.1:9", "hwt_x")) as client,
        pytest.raises(GatewayUnreachable, match="headway up") as caught,
    ):
        client.queue()
    assert caught.value.url == "http://127.0.0.1:9"


def answering(answer: Answer, clock: FakeClock | None = None) -> Client:
    transport = httpx.MockTransport(answer)
    return Client(Address("http://gate", "hwt_x"), transport=transport, clock=clock)


def test_who_asks_too_often_waits_as_long_as_it_is_told() -> None:
    answers = [httpx.Response(429, headers={"Retry-After": "3"}), httpx.Response(200, json=[])]
    clock = FakeClock()
    before_s = clock.monotonic_s()
    assert answering(lambda _: answers.pop(0), clock).nodes() == []
    assert clock.monotonic_s() - before_s == 3.0


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>hello</html>"),
        httpx.Response(200, json={"not": "a list"}),
        httpx.Response(502, text="bad gateway"),
        httpx.Response(404, json={"what": "is this"}),
        httpx.Response(429, json={}),
        httpx.Response(429, headers=[(b"Retry-After", b"\xb2")]),
        httpx.Response(200, text="[" * 200_000),
        httpx.Response(302, headers={"Location": "http://page.example/v1/nodes"}),
    ],
    ids=lambda answer: f"{answer.status_code}-{len(answer.content)}",
)
def test_what_is_no_gateway_is_never_taken_for_one(answer: httpx.Response) -> None:
    with pytest.raises(HeadwayError):
        answering(lambda _: answer, FakeClock()).nodes()


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_without_an_end_does_not_fill_the_memory(status: int) -> None:
    sent = []

    def endless() -> Iterator[bytes]:
        for number in range(400):
            sent.append(number)
            yield MEBIBYTE

    client = answering(lambda _: httpx.Response(status, content=endless()))
    with pytest.raises(GatewayUnreachable, match="256 MiB"):
        client.nodes()
    assert len(sent) < 300


def test_what_claims_to_be_packed_and_is_not_is_no_gateway() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Junk())

    with pytest.raises(GatewayUnreachable):
        answering(answer).nodes()
    with pytest.raises(GatewayUnreachable):
        list(answering(answer).log("r1"))


class Junk(httpx.SyncByteStream):
    """No gzip at all."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"junk"
