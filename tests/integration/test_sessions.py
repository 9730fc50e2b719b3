"""Sessions: a program's port on another node, through the gateway, for its owner alone."""

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from urllib.parse import quote

import anyio
import httpx
import pytest
import uvicorn
from pydantic import SecretStr
from starlette.requests import Request
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from headway.client.ways import Forward
from headway.clock import SystemClock
from headway.credentials import Address
from headway.errors import InvalidInput
from headway.gateway import door, ports, sessions
from headway.gateway.sessions import sessions_app
from headway.ledger import Ledger
from headway.model.access import Scope
from headway.model.lease import Demand
from headway.model.node import Capacity, Node
from headway.model.number_range import NumberRange
from headway.model.run_file import signed
from headway.model.session import session_link, session_path, session_port, session_secret
from headway.node.file_server import serve_on
from headway.node.protocols import listening
from headway.node.run_ports import relay
from headway.pinning import only
from headway.run.here import connected_note, container_name
from headway.runtime.port import ContainerSpec
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB, MIB
from tests.support.api import MEMBER, bearer, serving
from tests.support.leading import grant_in_term
from tests.support.postgresql import new_ledger
from tests.support.site import free_port

RUN = "0b9a7b4e-5a33-4c8f-9a51-0c4b6c0f3f11"
PROGRAM = """
import json, os
from http import HTTPStatus
from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.sync.server import serve

SECRET = "Bearer " + os.environ["HEADWAY_SESSION_SECRET"]

def page(connection, request):
    if request.headers.get("Upgrade"):
        return None if request.headers["Authorization"] == SECRET else connection.respond(403, "")
    told = json.dumps([request.path, list(request.headers.raw_items())]).encode()
    headers = Headers([
        ("Content-Length", str(len(told))), ("Connection", "close"),
        ("Set-Cookie", "headway_token=stolen; Path=/"), ("Set-Cookie", "own=1; Path=/; HttpOnly"),
        ("Set-Cookie", "=headway_token=stolen"), ("Clear-Site-Data", '"cookies"'),
        ("Service-Worker-Allowed", "/"), ("X-Own", "kept"),
    ])
    return Response(200, "OK", headers, told)

def echo(connection):
    for message in connection:
        connection.send(message)

where = os.environ["HEADWAY_SESSION_HOST"], int(os.environ["HEADWAY_SESSION_PORT"])
with serve(echo, *where, process_request=page, subprotocols=["echo"]) as server:
    print("serving", flush=True)
    server.serve_forever()
"""
"""Answers what it was asked, with headers that a stranger might try; echoes over a WebSocket."""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    """The gateway's machine ``head``, and the node ``left`` on which ada's session runs."""
    folder = tmp_path_factory.mktemp("sessions")
    folder.chmod(0o755)
    url = SecretStr(new_ledger())
    made = {}
    for name in ("head", "left"):
        home = folder / name
        home.mkdir()
        settings = Settings(home=home, ledger_url=url, node=name, runtime="process")
        site = made[name] = Site(settings, SystemClock(), Ledger.find)
        site.settings.state_dir.mkdir()
        node = Node(name, "gpu", Capacity(8.0, 64 * GIB))
        site.ledger.nodes.register(node, boot_id="boot", worker_token=site.worker_token)
    serve_on(made["left"], "127.0.0.1", secured=True)
    begin(made["left"])
    yield made
    made["left"].runtime.remove(container_name(RUN, 1))
    for site in made.values():
        site.ledger.close()


def begin(site: Site) -> None:
    """Start the session's program on *site*'s node, as a flow would."""
    job = {
        "name": "notes", "image": "python:3.11", "command": ["python"], "ports": [free_port()],
        "session": {},
    }  # fmt: skip
    site.ledger.runs.enqueue(
        RUN, job, name="notes", owner="ada", team="vision", pool="gpu", priority=0,
        submitted_at=site.ledger.now(),
    )  # fmt: skip
    demand = Demand(GIB, ports=tuple(job["ports"]))
    port = free_port()
    ranges = {"vision": NumberRange(port, port)}
    lease = grant_in_term(site.ledger, RUN, "left", demand, ttl_s=900.0, port_ranges=ranges)
    assert set(lease.ports) == {port, *job["ports"]}
    log = site.settings.runs_dir / RUN / "log"
    log.mkdir(parents=True)
    spec = ContainerSpec(
        name=container_name(RUN, 1), run_id=RUN, attempt=1, image="python:3.11",
        command=(sys.executable, "-c", PROGRAM), mounts=(), log_path=log / "attempt-1.log",
        env={
            "HEADWAY_SESSION_HOST": "127.0.0.1", "HEADWAY_SESSION_PORT": str(port),
            "HEADWAY_SESSION_SECRET": session_secret(lease.token),
        },
        host_memory_bytes=GIB, cpus=1.0, shm_bytes=MIB, ports=lease.ports,
        user="65534:65534" if os.geteuid() == 0 else "",
    )  # fmt: skip
    site.runtime.create(spec)
    site.runtime.start(spec.name)
    site.ledger.runs.begin(lease.fence, container=spec.name, runtime="process", ttl_s=900.0)
    deadline = time.monotonic() + 60
    while not site.runtime.serves(spec.name, port):
        assert time.monotonic() < deadline, spec.log_path.read_text()
        time.sleep(0.05)


@contextmanager
def served(app) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="warning", ws="websockets-sansio")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=20)


@pytest.fixture(scope="module")
def origin(sites) -> Iterator[str]:
    """The gateway's port for sessions."""
    with served(sessions_app(sites["head"], allowed_hosts=["127.0.0.1"])) as url:
        yield url


@pytest.fixture(scope="module")
def ada(sites) -> dict[str, str]:
    return bearer(sites["head"], "ada", "vision", MEMBER)


def path(more: str = "") -> str:
    return session_path(RUN) + more


def test_its_owner_reaches_the_program_on_its_node(origin, ada) -> None:
    got = httpx.get(f"{origin}{path('a%2Fb?q=%20')}", headers=ada)
    assert got.status_code == 200
    asked = got.json()[0]
    assert asked == path("a%2Fb?q=%20")
    token = ada["Authorization"].removeprefix("Bearer ")
    assert token not in got.text
    assert got.headers["x-own"] == "kept"


def test_its_programs_cookies_are_below_its_path_and_never_the_gateways(origin, ada) -> None:
    cookie = f"a=1; headway_token={ada['Authorization'].removeprefix('Bearer ')}; own=2"
    got = httpx.get(origin + path(), headers={"Cookie": cookie})
    sent = dict(got.json()[1])
    assert sent["cookie"] == "a=1; own=2"
    assert got.headers.get_list("set-cookie") == [f"own=1; HttpOnly; Path={path()}"]
    assert not {"clear-site-data", "service-worker-allowed"} & set(got.headers)


def test_a_second_login_cookie_of_a_page_makes_both_worthless(origin, ada) -> None:
    token = ada["Authorization"].removeprefix("Bearer ")
    cookie = f"headway_token=hw_other; headway_token={token}"
    assert httpx.get(origin + path(), headers={"Cookie": cookie}).status_code == 401


@pytest.mark.parametrize(
    ("who", "status"),
    [
        (("eve", "speech", MEMBER), 404),
        (("ada", "speech", MEMBER), 404),
        (("bob", "vision", MEMBER), 403),
        (("ada", "vision", {Scope.WATCH}), 403),
        (("root", "default", {Scope.OPERATE}), 403),  # a stranger's page, beside its own sessions
    ],
)
def test_nobody_else_does(sites, origin, who, status) -> None:
    headers = bearer(sites["head"], *who)
    assert httpx.get(origin + path(), headers=headers).status_code == status
    with pytest.raises(InvalidStatus):
        connect(origin.replace("http", "ws") + path(), additional_headers=headers)


def test_without_a_token_nobody_does(sites, origin) -> None:
    assert httpx.get(origin + path()).status_code == 401
    led = httpx.get(origin + path("lab?x=1"), headers={"Accept": "text/html"})
    login = f"//127.0.0.1:{sites['head'].settings.gateway_port}/v1/login?next="
    link = quote(session_link(RUN), safe="")
    assert (led.status_code, led.headers["location"]) == (303, login + link)
    led = httpx.get(f"{origin}/elsewhere", headers={"Accept": "text/html"})
    assert (led.status_code, led.headers["location"]) == (303, f"{login}%2Fheadway")
    with pytest.raises(InvalidStatus):
        connect(origin.replace("http", "ws") + path())


@pytest.mark.parametrize("where", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_no_page_of_another_origin_asks(origin, ada, where) -> None:
    headers = ada | {"Origin": where}
    assert httpx.get(origin + path(), headers=headers).status_code == 403
    with pytest.raises(InvalidStatus):
        connect(origin.replace("http", "ws") + path(), additional_headers=headers)


def test_nothing_of_the_gateway_is_on_its_origin(origin, ada) -> None:
    for asked in ("/", "/v1/runs", f"/v1/runs/{RUN}", "/api/health", f"/{RUN[:8]}/", f"/{RUN}x/"):
        assert httpx.get(origin + asked, headers=ada).status_code == 404
    up = httpx.get(f"{origin}{path('../v1/runs')}", headers=ada)
    assert up.status_code in (200, 404)
    assert "/v1" not in up.json()[0] if up.status_code == 200 else True


def test_messages_pass_both_ways(origin, ada) -> None:
    url = origin.replace("http", "ws") + path("socket")
    with connect(url, additional_headers=ada, subprotocols=["echo"]) as opened:
        assert opened.subprotocol == "echo"
        for message in ("text ÿ", b"\x00bytes", "x" * 300_000):
            opened.send(message)
            assert opened.recv(timeout=30) == message


@pytest.fixture(scope="module")
def gateway(sites) -> Iterator[str]:
    """The gateway's own origin."""
    with serving(sites["head"]) as url:
        yield url


@contextmanager
def forwarded(gateway: str, headers: dict[str, str], port: int) -> Iterator[tuple[int, list[str]]]:
    """A port of this machine that leads to *port* of the run, and what is said meanwhile."""
    said: list[str] = []
    address = Address(gateway, headers["Authorization"].removeprefix("Bearer "))
    way = Forward(address, RUN, port, local_port=0, said=said.append)
    thread = threading.Thread(target=way.serve, daemon=True)
    thread.start()
    yield way.local_port, said
    way.close()
    thread.join(timeout=20)


def own_port(sites) -> int:
    lease = sites["left"].ledger.leases.of_run(RUN)
    port = session_port(sites["left"].ledger.runs.get(RUN).job, lease.ports)
    assert port is not None
    return port


def test_a_port_here_leads_to_its_program(sites, gateway, ada) -> None:
    with forwarded(gateway, ada, own_port(sites)) as (port, said):
        got = httpx.get(f"http://127.0.0.1:{port}{path()}", headers={"X-Mine": "1"})
        assert dict(got.json()[1])["X-Mine"] == "1"
        assert "authorization" not in got.text.lower()
    assert said == []


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_its_pages_are_served_at_addresses_of_both_kinds(host: str) -> None:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, 0), family=family).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    listening(host, 0).close()


def test_a_port_here_that_is_taken_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=rf"--local-port.*{port}.*give another one"):
            Forward(Address("http://head", "t"), RUN, 6006, local_port=port, said=print)
        # Where nobody has named one: on a node the run itself has it.
        way = Forward(Address("http://head", "t"), RUN, port, local_port=None, said=print)
        assert way.local_port != port
        way.close()


@pytest.mark.parametrize(
    ("who", "told"),
    [
        (("eve", "speech", MEMBER), "no run"),
        (("bob", "vision", MEMBER), "ada's of team vision"),
        (("ada", "vision", {Scope.WATCH}), "with the scope submit"),
    ],
)
def test_nobody_else_is_led_there(sites, gateway, who, told) -> None:
    headers = bearer(sites["head"], *who)
    with forwarded(gateway, headers, own_port(sites)) as (port, said):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}{path()}")
        assert told in said[0]


def test_no_port_leads_to_another_service_of_the_node(sites, gateway, ada) -> None:
    """Neither one that the run does not have, nor one that it has and does not listen at."""
    record = sites["left"].ledger.runs.get(RUN)
    with socket.create_server(("127.0.0.1", record.job["ports"][0])) as its_own:
        its_own.settimeout(0.2)
        with socket.create_server(("127.0.0.1", 0)) as foreign:
            foreign.settimeout(0.2)
            for service in (foreign, its_own):
                with forwarded(gateway, ada, service.getsockname()[1]) as (port, said):
                    with pytest.raises(httpx.TransportError):
                        httpx.get(f"http://127.0.0.1:{port}/")
                    assert "cannot be reached" in said[0]
                with pytest.raises(TimeoutError):
                    service.accept()


def test_a_page_may_not_forward_with_the_login_of_its_reader(sites, gateway, ada) -> None:
    token = ada["Authorization"].removeprefix("Bearer ")
    url = f"ws{gateway.removeprefix('http')}/v1/runs/{RUN}/ports/{own_port(sites)}"
    with (
        connect(url, additional_headers={"Cookie": f"headway_token={token}"}) as opened,
        pytest.raises(ConnectionClosed) as closed,
    ):
        opened.recv(timeout=30)
    assert "send the token in Authorization" in closed.value.rcvd.reason


def test_its_node_takes_the_gateways_word_alone(sites) -> None:
    (left,) = [each for each in sites["head"].ledger.nodes.all() if each.node.name == "left"]
    target = f"/runs/{RUN}/ports/{own_port(sites)}"
    now_s = time.time()
    other = f"/runs/{RUN}/log"
    for headers in (
        {},
        signed("wrong", "left", "GET", target, now_s),
        signed(left.worker_token, "left", "GET", other, now_s),
    ):
        # The client misses the refusal about once in a hundred times, and waits for it in vain.
        with pytest.raises((InvalidStatus, TimeoutError)):
            connect(
                f"wss{left.files_url.removeprefix('https')}{target}",
                additional_headers=headers, ssl=only(left.files_certificate), proxy=None,
                open_timeout=5,
            )  # fmt: skip


def test_an_operator_who_forwards_to_anothers_run_is_noted_once_a_day(sites, gateway, ada) -> None:
    operator = bearer(sites["head"], "olga")
    with forwarded(gateway, operator, own_port(sites)) as (port, _):
        for _ in range(3):
            httpx.get(f"http://127.0.0.1:{port}{path()}")
    with forwarded(gateway, ada, own_port(sites)) as (port, _):
        httpx.get(f"http://127.0.0.1:{port}{path()}")
    entries = sites["head"].ledger.audit_log.newest(9, subject=RUN)
    noted = [each for each in entries if each.act == "run.forward"]
    assert [(each.actor, each.details) for each in noted] == [
        ("olga", {"port": str(own_port(sites))})
    ]


def test_what_is_open_ends_when_its_token_is_revoked(sites, origin, gateway, monkeypatch) -> None:
    monkeypatch.setattr(door, "RECHECK_S", 0.1)
    headers = bearer(sites["head"], "ada", "vision", MEMBER)
    socket_url = origin.replace("http", "ws") + path("socket")
    page = connect(socket_url, additional_headers=headers, subprotocols=["echo"])
    port = f"{gateway.replace('http', 'ws')}/v1/runs/{RUN}/ports/{own_port(sites)}"
    bytes_ = connect(port, additional_headers=headers)
    try:
        page.send("still there")
        assert page.recv(timeout=30) == "still there"
        assert bytes_.recv(timeout=30) == b""
        newest = max(
            each.token_id for each in sites["head"].ledger.access_tokens.all() if each.user == "ada"
        )
        sites["head"].ledger.access_tokens.revoke("ada", actor="tests", token_id=newest)
        for opened in (page, bytes_):
            with pytest.raises(ConnectionClosed) as closed:
                opened.recv(timeout=30)
            assert closed.value.rcvd.code == 1008
    finally:
        page.close()
        bytes_.close()


def test_a_user_has_so_many_connections_and_gets_them_back(origin, ada, monkeypatch) -> None:
    monkeypatch.setattr(ports, "MOST_AT_ONCE", 1)
    page, let_in = origin + path(), 0
    deadline = time.monotonic() + 60
    while let_in < 3:
        assert time.monotonic() < deadline, "a connection that has ended still counts"
        with (
            suppress(InvalidStatus),
            connect(page.replace("http", "ws"), additional_headers=ada, subprotocols=["echo"]),
        ):
            let_in += 1
            second = httpx.get(page, headers=ada)
            assert second.status_code == 409
            assert "1 connections to runs of its owner are open" in second.text


def test_a_client_that_has_left_before_it_was_accepted_holds_nothing() -> None:
    async def left(_: object) -> None:
        raise OSError

    async def asks() -> dict[str, str]:
        return {"type": "websocket.connect"}

    class Stream:
        closed = False

        async def receive(self) -> bytes:
            return b""

        async def send(self, _: bytes) -> None: ...

        async def aclose(self) -> None:
            self.closed = True

    stream = Stream()
    client = WebSocket({"type": "websocket", "path": "/", "headers": []}, asks, left)
    anyio.run(relay, client, stream)
    assert stream.closed


@pytest.mark.parametrize("header", [(b"content-length", b"5"), (b"accept", b"*/*")])
def test_no_program_is_waited_for_whose_client_has_left(header: tuple[bytes, bytes]) -> None:
    async def asks() -> dict[str, str]:
        return {"type": "http.disconnect"}

    class Silent:
        async def receive(self) -> bytes:
            await anyio.sleep_forever()
            return b""

        async def send(self, _: bytes) -> None: ...

        async def aclose(self) -> None: ...

    scope = {
        "type": "http", "method": "GET", "path": path(), "raw_path": path().encode(),
        "query_string": b"", "headers": [(b"host", b"head"), header],
    }  # fmt: skip
    run = SimpleNamespace(record=SimpleNamespace(run_id=RUN, team="vision"))

    async def answered() -> int:
        with anyio.fail_after(20):
            answer = await sessions._answered(Request(scope, asks), Silent(), scope["headers"], run)
        return answer.status_code

    assert anyio.run(answered) == 499


def test_a_connection_keeps_its_note_new(sites, origin, ada) -> None:
    note = connected_note(sites["left"].settings, RUN)
    os.utime(note, (0, 0))
    httpx.get(origin + path(), headers=ada)
    assert note.stat().st_mtime > 0
