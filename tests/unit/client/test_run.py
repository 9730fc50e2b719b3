"""Waiting for a run, at a gateway that answers what a test says."""

import gc
from collections.abc import Iterator

import httpx
import pytest

from headway import Client
from headway.credentials import Address
from headway.errors import RunFailed, RunUnknown, WaitTimedOut
from headway.model.run_file import FROM
from tests.ports.clock import FakeClock

RUN: dict[str, object] = {"run_id": "a1", "name": "digits", "state": "Running", "url": "/runs/a1"}
GOES_ON = {"over": False, "url": "/runs/a1", "state": "Running"}
OVER = {"over": True, "url": "/runs/a1", "state": "Completed"}


class Gateway:
    """Answers to the questions how a run stands, one after the other; the last one for good."""

    def __init__(self, *answers: dict[str, object] | int | None, ended: str = "Completed") -> None:
        """A number is the status of a refusal, None a connection that fails."""
        self._answers = iter(answers)
        self._last = answers[-1]
        self._ended = RUN | {"state": ended, "exit": {"message": "as the test says"}}
        self.asked = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/standing"):
            return httpx.Response(200, json=self._ended if self.asked else RUN)
        self.asked += 1
        answer = next(self._answers, self._last)
        if answer is None:
            raise httpx.ConnectError("nobody there")
        if isinstance(answer, int):
            why = {"run": "a1"} if answer == httpx.codes.NOT_FOUND else {"detail": "not now"}
            return httpx.Response(answer, json=why)
        return httpx.Response(200, json=answer)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def at(gateway: Gateway, clock: FakeClock) -> Client:
    address = Address("http://127.0.0.1:1", "t")
    return Client(address, transport=httpx.MockTransport(gateway), clock=clock)


def test_it_waits_on_while_the_gateway_is_away(clock: FakeClock) -> None:
    gateway = Gateway(GOES_ON, None, 503, GOES_ON, OVER)
    run = at(gateway, clock).run("a1")
    assert run.wait()["exit"]["message"] == "as the test says"
    assert gateway.asked == 5


def test_it_waits_no_longer_than_it_was_told(clock: FakeClock) -> None:
    with pytest.raises(WaitTimedOut, match="1 min"):
        at(Gateway(None), clock).run("a1").wait(timeout_s=60.0)
    client = at(Gateway(GOES_ON), clock)
    with pytest.raises(WaitTimedOut):
        list(client.as_completed([client.run("a1")], timeout_s=60.0))


def test_a_run_that_is_not_there_ends_the_wait(clock: FakeClock) -> None:
    with pytest.raises(RunUnknown):
        at(Gateway(404), clock).run("a1").wait()


def test_another_end_is_an_error_with_its_reason(clock: FakeClock) -> None:
    client = at(Gateway(GOES_ON, OVER, ended="Failed"), clock)
    with pytest.raises(RunFailed, match="digits is Failed: as the test says"):
        client.run("a1").wait()
    (run,) = client.as_completed([client.run("a1")])
    assert run["state"] == "Failed"


class Log(httpx.SyncByteStream):
    """A body that comes bit by bit."""

    def __iter__(self) -> Iterator[bytes]:
        yield from (b"one ", b"two")


class Way(httpx.BaseTransport):
    """To a gateway that has a log."""

    closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert not self.closed
        if request.url.params["from"] != "0":
            return httpx.Response(204)
        return httpx.Response(200, headers={FROM: "0"}, stream=Log())

    def close(self) -> None:
        self.closed = True


def test_what_is_read_bit_by_bit_outlives_who_asked(clock: FakeClock) -> None:
    way = Way()
    pieces = Client(Address("http://127.0.0.1:1", "t"), transport=way, clock=clock).log("a1")
    gc.collect()
    assert b"".join(pieces) == b"one two"
    del pieces
    gc.collect()
    assert way.closed
