"""Attacks on the gateway below what a client would send, and on every route that names a run."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

from headway.gateway.app import create_app
from headway.gateway.certificate import make_certificate
from headway.gateway.door import COOKIE
from headway.node.protocols import BoundedHttp
from headway.prefect.client import PrefectServer
from headway.site import Site
from tests.support.api import MEMBER, bearer, serving, site_in
from tests.support.on_ledger import enqueue

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
THEIRS, NEVER = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
INSTEAD = "X-HTTP-Method-Override: POST\r\n"
CLOSE = "Connection: close\r\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = site_in(tmp_path_factory.mktemp("http"))
    enqueue(made.ledger, THEIRS, JOB, name="canary", owner="eve", team="speech")
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def url(site: Site) -> Iterator[str]:
    with serving(site) as address:
        yield address


@pytest.fixture(scope="module")
def shown(site: Site) -> dict[str, str]:
    """Headers with the token of a member of another team than the canary's."""
    return bearer(site, "ada", "vision", MEMBER)


def sent(url: str, text: str) -> str:
    """All that is answered to *text*, until the gateway closes the connection."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(text.encode("latin-1"))
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode("latin-1")


def status(answer: str) -> int:
    return int(answer.split()[1])


@pytest.mark.parametrize(
    ("lines", "statuses"),
    [
        ("GET /v1/runs/ HTTP/1.1\r\nHost: evil.example\r\n", {400}),
        ("GET /v1/runs/ HTTP/1.1\r\nHost: 127.0.0.1:80@evil.example\r\n", {400}),
        ("GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n", {400}),
        ("GET /v1/runs HTTP/1.1\r\n", {400}),
        ("GET /v1/runs HTTP/1.0\r\n", {400}),
        ("GET http://evil.example/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n", {400}),
        ("CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1\r\n", {400}),
        ("TRACE /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n", {405}),
        (f"GET /v1/runs/{THEIRS}/cancel HTTP/1.1\r\nHost: 127.0.0.1\r\n{INSTEAD}", {403, 405}),
    ],
)  # fmt: skip
def test_a_request_for_another_host_or_method_is_not_answered(
    url: str, shown: dict[str, str], lines: str, statuses: set[int]
) -> None:
    token = f"Authorization: {shown['Authorization']}\r\n"
    answer = sent(url, f"{lines}{token}{CLOSE}\r\n")
    assert status(answer) in statuses, answer
    assert "evil" not in answer


@pytest.mark.parametrize(
    "lengths",
    [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 5\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\nContent-Length: 4\r\n",
    ],
)
def test_no_second_request_is_smuggled_in_a_body(
    url: str, shown: dict[str, str], lengths: str
) -> None:
    host = f"Host: {urlsplit(url).netloc}\r\n"
    smuggled = f"GET /v1/health HTTP/1.1\r\n{host}{CLOSE}\r\n"
    head = f"POST /v1/runs HTTP/1.1\r\n{host}Authorization: {shown['Authorization']}\r\n"
    answer = sent(url, f"{head}{lengths}\r\n0\r\n\r\n{smuggled}")
    assert status(answer) in {400, 501}, answer
    assert answer.count("HTTP/1.1 ") == 1


UPGRADES = [
    f"{line} HTTP/1.1\r\nUpgrade: {protocol}\r\nConnection: Upgrade\r\n"
    for line in ("POST /v1/runs", "GET /v1/health", "DELETE /v1/health")
    for protocol in ("websocket", "h2c")
]


@pytest.mark.parametrize("start", [*UPGRADES, "CONNECT / HTTP/1.1\r\n"])
@pytest.mark.parametrize("length", ["Content-Length: {}\r\n", "Transfer-Encoding: chunked\r\n", ""])
def test_no_second_request_is_smuggled_behind_an_upgrade(
    url: str, shown: dict[str, str], start: str, length: str
) -> None:
    """A parser that takes what follows for another protocol does not take it for the body."""
    if start.startswith("GET") and not length:
        return  # nothing is hidden in what has no body
    host = f"Host: {urlsplit(url).netloc}\r\n"
    smuggled = f"GET /v1/health HTTP/1.1\r\n{host}{CLOSE}\r\n"
    head = f"{start}{host}Authorization: {shown['Authorization']}\r\n"
    head += length.format(len(smuggled))
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        connection.sendall(f"{head}\r\n".encode())
        answer = connection.recv(1 << 16)
        with suppress(ConnectionError):
            connection.sendall(smuggled.encode())
            while more := connection.recv(1 << 16):
                answer += more
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_endless_headers_are_given_up(url: str) -> None:
    head = f"GET /v1/health HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nX: {'a' * 10**6}"
    with suppress(ConnectionResetError, BrokenPipeError):  # it was closed while more came
        assert status(sent(url, head)) == 400
    assert httpx.get(f"{url}/v1/health").status_code == 200


class _Hasty(BoundedHttp):
    request_limit_s: ClassVar[float] = 0.3


@pytest.fixture(scope="module")
def hasty(site: Site) -> Iterator[str]:
    """A gateway that waits for 0.3 seconds where others wait for thirty."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        PrefectServer(site.settings.api_url, auth=None, timeout_s=1.0) as nobody,
    ):
        config = uvicorn.Config(create_app(site, nobody), http=_Hasty, log_level="warning")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=20)


@pytest.mark.parametrize("part", ["", "GET /v1/he", "GET / HTTP/1.1\r\nX: y", "body", "later"])
def test_who_never_ends_a_request_is_left(hasty: str, shown: dict[str, str], part: str) -> None:
    token = f"Authorization: {shown['Authorization']}\r\n"
    body = f"POST /v1/runs HTTP/1.1\r\nHost: a\r\n{token}Content-Length: 9\r\n\r\n{{"
    address = urlsplit(hasty)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        if part == "later":
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall({"body": body, "later": "GET /v1/he"}.get(part, part).encode())
        with suppress(ConnectionResetError):
            while connection.recv(65536):
                pass  # the end of the answer of before
    assert httpx.get(f"{hasty}/v1/health", timeout=60).status_code == 200


@pytest.mark.parametrize(
    "page",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_no_other_page_logs_a_browser_in(
    url: str, shown: dict[str, str], page: dict[str, str]
) -> None:
    """Else its user would submit jobs as somebody else, who then reads them."""
    given = {"token": shown["Authorization"].removeprefix("Bearer ")}
    answer = httpx.post(f"{url}/v1/login", data=given, headers=page)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_script_from_elsewhere_on_the_page_of_routes_has_no_login(
    url: str, shown: dict[str, str]
) -> None:
    answer = httpx.get(f"{url}/v1/docs", headers=shown)
    policy = answer.headers["content-security-policy"].split("; ")
    assert "sandbox allow-scripts" in policy  # so of an origin of its own
    assert "frame-ancestors 'none'" in policy
    assert "/v1/rehearsals" in answer.text  # it asks for nothing: all is there


def test_over_tls_a_cookie_is_never_sent_without_it(site: Site, shown: dict[str, str]) -> None:
    """Also by a tunnel, where the browser asks for this machine's own name."""
    given = {"token": shown["Authorization"].removeprefix("Bearer ")}
    own = make_certificate(site.settings, ["127.0.0.1"], site.clock.now())
    with serving(site, own=own) as url:
        answer = httpx.post(f"{url}/v1/login", data=given, verify=False)
    assert answer.status_code == 303
    (cookie,) = answer.headers.get_list("set-cookie")
    assert cookie.startswith(f"{COOKIE}=hwt_")
    assert {"secure", "httponly", "samesite=strict"} <= set(cookie.lower().split("; "))


def test_no_route_tells_of_another_teams_run(site: Site, url: str, shown: dict[str, str]) -> None:
    """Each that names a run, whatever is added, answers as for a run that never was."""
    with PrefectServer(site.settings.api_url, auth=None) as nobody:
        paths = create_app(site, nobody).openapi()["paths"]
    named = [(method, path) for path in paths if "{run" in path for method in paths[path]]
    assert len(named) >= 10, named
    with httpx.Client(base_url=url, headers=shown, timeout=60) as ada:
        for method, path in named:
            answers = [_asked(ada, method, path, run) for run in (THEIRS, NEVER, "canary")]
            assert [each.status_code for each in answers] == [404] * 3, (method, path, answers)
            theirs, never = (
                each.text.replace(run, "RUN")
                for each, run in zip(answers[:2], (THEIRS, NEVER), strict=True)
            )
            assert theirs == never
        for asked in ({"team": "speech"}, {"user": "eve"}):
            answer = ada.get("/v1/usage", params=asked)
            assert answer.status_code == 403 or answer.json()["total"]["runs"] == 0


def _asked(client: httpx.Client, method: str, path: str, run: str) -> httpx.Response:
    filled = path
    for part in ("{run}", "{run_id}"):
        filled = filled.replace(part, run)
    filled = filled.replace("{path:path}", "model.pt").replace("{path}", "model.pt")
    content = b"{}" if method in {"post", "put", "patch"} else None
    return client.request(method, filled, content=content)


TINY = b"1\r\nx\r\n"


def taken(
    url: str, head: str, piece: bytes, most_bytes: int, first: bytes = b""
) -> tuple[int, int]:
    """Status of the answer, and how much of *first* and endless *piece*s went before the end."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(f"{head}Host: {address.netloc}\r\n".encode())
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n" + first)
        sent_bytes, answer = 0, b""
        with suppress(ConnectionResetError, BrokenPipeError):
            while sent_bytes < most_bytes:
                connection.sendall(piece)
                sent_bytes += len(piece)
        with suppress(ConnectionResetError):
            answer = connection.recv(65536)
    return status(answer.decode()) if answer else 0, sent_bytes


@pytest.mark.parametrize(
    ("path", "piece"),
    [
        ("/v1/login", TINY * 1000),
        ("/v1/runs", TINY * 1000),
        ("/v1/health", b"400\r\n" + b"x" * 1024 + b"\r\n"),
        ("/v1/runs", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_an_endless_body_is_left_soon(
    url: str, shown: dict[str, str], path: str, piece: bytes, *, known: bool
) -> None:
    """However it comes: in pieces of a byte each, or large; with a token or without."""
    token = f"Authorization: {shown['Authorization']}\r\n" if known else ""
    answered, sent_bytes = taken(url, f"POST {path} HTTP/1.1\r\n{token}", piece, 1 << 28)
    # What the kernel holds on both sides has been sent, too; nobody has read it.
    assert sent_bytes < 1 << 24
    assert answered in {0, 400, 401, 405, 422, 429}  # a reset may overtake the answer


@pytest.mark.parametrize("first", [b"0\r\nX: ", b"1;", b"1\r\nx\r\n0\r\nX: y\r\nZ"])
@pytest.mark.parametrize("path", ["/v1/login", "/v1/runs"])
def test_what_is_beside_a_body_is_left_soon(
    url: str, shown: dict[str, str], path: str, first: bytes
) -> None:
    """The parser keeps a line behind the body, such as ``X: aaaa…``, until it ends."""
    head = f"POST {path} HTTP/1.1\r\nAuthorization: {shown['Authorization']}\r\n"
    answered, sent_bytes = taken(url, head, b"a" * 65536, 1 << 28, first)
    assert sent_bytes < 1 << 24
    assert answered in {0, 400}


def test_a_body_in_tiny_pieces_is_refused_after_a_few(url: str, shown: dict[str, str]) -> None:
    token = f"Authorization: {shown['Authorization']}\r\n"
    body = TINY.decode() * 1100 + "0\r\n\r\n"
    head = f"POST /v1/runs HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n{token}{CLOSE}"
    assert status(sent(url, f"{head}Transfer-Encoding: chunked\r\n\r\n{body}")) == 400


def test_requests_sent_ahead_are_few(url: str) -> None:
    one = f"GET /v1/health HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n"
    answers = sent(url, one * 1000)
    assert 0 < answers.count("HTTP/1.1 ") < 1000


def test_bad_logins_lock_out_nobody_with_a_good_token(url: str, shown: dict[str, str]) -> None:
    token = shown["Authorization"].removeprefix("Bearer ")
    with httpx.Client(base_url=url, timeout=60) as client:
        bad = [client.post("/v1/login", data={"token": "hwt_no"}).status_code for _ in range(30)]
        assert (bad[0], bad[-1]) == (401, 429)
        assert client.post("/v1/login", data={"token": token}).status_code == 303
