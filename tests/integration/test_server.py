"""The Prefect server when it is slow to answer, over a real socket."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headway.admin.join import _accepted_auth, join
from headway.errors import InvalidInput, SiteRefused, SiteUnreachable
from headway.prefect.auth import CLIENT
from headway.prefect.client import PrefectServer
from headway.settings import Settings
from tests.ports.clock import FakeClock


class Slow(BaseHTTPRequestHandler):
    """Is healthy, but keeps silent as often as its server says."""

    def do_GET(self) -> None:
        self.server.asked += 1  # type: ignore[attr-defined]
        if self.server.asked <= self.server.silent:  # type: ignore[attr-defined]
            time.sleep(1.2)
        self.send_response(200)
        self.end_headers()
        with suppress(BrokenPipeError):  # nobody waits for it any more
            self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.asked = server.silent = 0  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def ask(server: ThreadingHTTPServer) -> object:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with PrefectServer(url, auth=None, timeout_s=0.5, clock=FakeClock()) as client:
        return client._call("GET", "/")


def test_an_answer_that_does_not_come_is_asked_for_again(server: ThreadingHTTPServer) -> None:
    server.silent = 2  # type: ignore[attr-defined]
    assert ask(server) == []
    assert server.asked >= 3  # type: ignore[attr-defined]


def test_a_server_that_stays_silent_is_not_reachable(server: ThreadingHTTPServer) -> None:
    server.silent = 99  # type: ignore[attr-defined]
    with pytest.raises(SiteUnreachable, match="ReadTimeout"):
        ask(server)


class Guarded(BaseHTTPRequestHandler):
    """Asks for an auth string and for a token that it has handed out, as Prefect does."""

    def _refuse(self) -> int | None:
        if self.path == "/health":
            return None
        if self.headers.get("Authorization") != "Basic YTpi":
            return 401
        tokens = self.server.tokens  # type: ignore[attr-defined]
        token, client = (self.headers.get(f"Prefect-Csrf-{name}") for name in ("Token", "Client"))
        if self.command != "GET" and (token is None or tokens.get(client) != token):
            return 403
        return None

    def do_GET(self) -> None:
        body = b"true" if self.path == "/health" else b"[]"
        if self.path.startswith("/csrf-token?client=") and self._refuse() is None:
            client = self.path.split("=")[1]
            self.server.tokens[client] = f"token-{client}"  # type: ignore[attr-defined]
            body = b'{"token": "token-%s"}' % client.encode()
        self.send_response(self._refuse() or 200)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def guarded() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        server.tokens = {}  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def client_of(server: ThreadingHTTPServer, auth: str | None) -> PrefectServer:
    return PrefectServer(f"http://127.0.0.1:{server.server_address[1]}", auth=auth)


def test_a_token_is_had_where_one_is_wanted_and_a_new_one_when_it_is_old(guarded) -> None:
    with client_of(guarded, "a:b") as client:
        assert client._call("POST", "/runs", {}) == []
        assert client._call("POST", "/runs", {}) == []
        assert len(guarded.tokens) == 1
        guarded.tokens.clear()
        assert client._call("POST", "/runs", {}) == []
        assert client.accepts()


@pytest.mark.parametrize("auth", [None, "a:wrong"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_who_is_refused_is_told_where_the_string_is(guarded, auth: str | None, method: str) -> None:
    with client_of(guarded, auth) as client:
        assert not client.accepts()
        with pytest.raises(SiteRefused) as refused:
            client._call(method, "/runs")
    said = str(refused.value)
    assert "HTTP 401" in said
    assert "give it as PREFECT_API_AUTH_STRING" in said
    assert "headway up" not in said


def test_a_server_without_auth_is_not_taken_for_one_with(server: ThreadingHTTPServer) -> None:
    with client_of(server, "a:b") as client:
        assert not client.accepts()


def test_who_joins_is_asked_only_where_the_string_is_not_known(
    guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{guarded.server_address[1]}"
    settings = Settings(home=tmp_path)
    monkeypatch.delenv(CLIENT, raising=False)
    with pytest.raises(SiteRefused):
        _accepted_auth(settings, url, None)
    assert _accepted_auth(settings, url, lambda: "a:b") == "a:b"
    monkeypatch.setenv(CLIENT, "a:b")
    assert _accepted_auth(settings, url, None) == "a:b"


def test_an_address_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    for address in ("::::", "http://[::1", "head:4200\x1b[2J/api"):
        with pytest.raises(InvalidInput, match="give an address such as") as refused:
            join(Settings(home=tmp_path), server_url=address, ledger_url="postgresql://", say=print)
        assert refused.value.field == "server"
