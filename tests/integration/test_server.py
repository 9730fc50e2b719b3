"""The Prefect server when it is slow to answer, over a real socket."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headway.errors import SiteUnreachable
from headway.server import PrefectServer
from headway.testing.clock import FakeClock


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
    with PrefectServer(url, timeout_s=0.5, clock=FakeClock()) as client:
        return client._call("GET", "/")


def test_an_answer_that_does_not_come_is_asked_for_again(server: ThreadingHTTPServer) -> None:
    server.silent = 2  # type: ignore[attr-defined]
    assert ask(server) == []
    assert server.asked >= 3  # type: ignore[attr-defined]


def test_a_server_that_stays_silent_is_not_reachable(server: ThreadingHTTPServer) -> None:
    server.silent = 99  # type: ignore[attr-defined]
    with pytest.raises(SiteUnreachable, match="ReadTimeout"):
        ask(server)
