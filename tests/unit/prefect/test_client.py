"""What the command line asks Prefect for, and what it makes of the answers."""

import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from headway.errors import SiteBroken, SiteUnreachable
from headway.prefect.client import PrefectServer
from tests.ports.clock import FakeClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def server(answer: Callable[[str, Any], Any], monkeypatch: pytest.MonkeyPatch) -> PrefectServer:
    made = PrefectServer("http://nowhere/api", auth=None)
    monkeypatch.setattr(made, "_call", lambda _method, path, body=None: answer(path, body))
    return made


@pytest.mark.parametrize("gone", ["", "rank/gang", "headway-line"])
def test_what_was_deleted_of_what_up_registers_is_missed(monkeypatch, gone: str) -> None:
    def answer(path: str, _: Any) -> Any:
        if gone and gone in path:
            raise LookupError(path)
        return {"work_pool_name": "gpu"}

    assert server(answer, monkeypatch).has_all("node") == (not gone)


@pytest.mark.parametrize(("there", "found"), [("gpu-node", True), ("process", False), ("", False)])
def test_a_pool_is_there_for_nodes_or_has_to_be_made(monkeypatch, there: str, found: bool) -> None:
    def answer(path: str, _: Any) -> Any:
        if not there:
            raise LookupError(path)
        return {"type": there}

    assert server(answer, monkeypatch).has_pool("gpu") is found


def test_a_deployment_whose_pool_was_deleted_counts_as_missing_and_takes_no_run(
    monkeypatch,
) -> None:
    left = server(lambda *_: {"work_pool_name": None}, monkeypatch)
    assert not left.has_all("node")
    with pytest.raises(SiteUnreachable, match=r"was deleted there\); start one with `headway up`"):
        left.submit({}, name="run", tags=[], key=None)


@pytest.mark.parametrize("never_started", [True, False])
def test_who_cancels_is_said_in_the_state(monkeypatch, never_started: bool) -> None:
    asked = []

    def answer(_: str, body: Any) -> Any:
        asked.append(body)
        if never_started:  # Prefect then sets a state of its own, which says nothing
            return {"status": "REJECT", "state": {"type": "CANCELLED", "name": "Cancelled"}}
        return {"status": "ACCEPT", "state": {"type": "CANCELLING", "name": "Cancelling"}}

    state = server(answer, monkeypatch).cancel("1", "cancelled by OS user ada (headway cancel)")
    assert state == ("Cancelled" if never_started else "Cancelling")
    assert {body["state"]["message"] for body in asked} == {
        "cancelled by OS user ada (headway cancel)"
    }
    assert [body["force"] for body in asked] == ([False, True] if never_started else [False])


def test_a_question_is_asked_once_where_somebody_waits_who_can_ask_anew(monkeypatch) -> None:
    asked: list[str] = []

    def busy(_: object, request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(503, request=request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", busy)
    made = PrefectServer("http://nowhere/api", auth=None, clock=FakeClock(NOON))
    with pytest.raises(SiteUnreachable, match="HTTP 503"):
        made.ask("GET", "/health", once=True)
    assert len(asked) == 1
    with pytest.raises(SiteUnreachable, match="HTTP 503"):
        made.ask("GET", "/health")
    assert len(asked) > 5


def test_a_connection_that_the_server_closes_after_a_failure_costs_no_answer() -> None:
    """As Prefect's does after HTTP 500, and a client that asks at once may not see it in time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for status in ("500 Internal Server Error", "200 OK"):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65_536)
                    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
                    connection.sendall(f"{head}Content-Length: 4\r\n\r\ntrue".encode())
                    if "500" in status:
                        connection.recv(65_536)  # the next question, which nobody answers

        thread = threading.Thread(target=serve)
        thread.start()
        server = PrefectServer(f"http://127.0.0.1:{listening.getsockname()[1]}/api", auth=None)
        with pytest.raises(SiteBroken):
            server.run("a")
        assert server.is_healthy()
        thread.join(timeout=20)
