"""What a program of a session answers, and what it may not do to its readers with it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from headway.gateway.session_answer import ProgramAnswer, ask


class Program:
    """Says what it is given, as it is cut."""

    def __init__(self, *says: bytes) -> None:
        self._says, self.got = [*says, b""], b""

    async def receive(self) -> bytes:
        return self._says.pop(0)

    async def send(self, data: bytes) -> None:
        self.got += data

    async def aclose(self) -> None: ...


@asynccontextmanager
async def longest_stand() -> AsyncIterator[list[float]]:
    """The longest time that the event loop stood within the block, as the one in the list."""
    stood_s: list[float] = [0.0]

    async def look() -> None:
        while True:
            began_s = time.thread_time()
            await anyio.lowlevel.checkpoint()
            stood_s[0] = max(stood_s[0], time.thread_time() - began_s)

    async with anyio.create_task_group() as both:
        both.start_soon(look)
        yield stood_s
        both.cancel_scope.cancel()


def answered(*says: bytes, has_body: bool = True) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    async def read() -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        answer = ProgramAnswer(Program(*says), "vision", has_body=has_body)
        await answer.begin()
        body = b"".join([piece async for piece in answer.pieces()])
        return answer.status, answer.headers, body

    return anyio.run(read)


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


@pytest.mark.parametrize(
    ("says", "body"),
    [
        ([OK + b"Content-Length: 3\r\n\r\nabc"], b"abc"),
        ([OK + b"Content-Length: 3\r\n\r\nabc", OK], b"abc"),
        ([OK + b"Content-Length: 3\r\n\r\nabc" + OK + b"Content-Length: 1\r\n\r\nx"], b"abc"),
        ([OK + b"\r\na", b"bc"], b"abc"),
        ([CHUNKED, b"1\r\na\r\n", b"2\r\nbc\r\n0\r\nX: y\r\n\r\n"], b"abc"),
        ([EARLY, EARLY + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"], b"abc"),
        ([bytes([each]) for each in OK + b"Content-Length: 3\r\n\r\nabc"], b"abc"),
        ([OK + b"Content-Length: 0\r\n\r\n"], b""),
        ([b"HTTP/1.1 204 No\r\n\r\n", b"x"], b""),
    ],
)
def test_an_answer_is_read_however_it_is_cut(says: list[bytes], body: bytes) -> None:
    status, headers, got = answered(*says)
    assert (status in (200, 204), got) == (True, body)
    assert b"Link" not in dict(headers)
    assert b"X" not in dict(headers)


def test_an_answer_to_head_has_no_body() -> None:
    assert answered(OK + b"Content-Length: 3\r\n\r\n", has_body=False)[2] == b""


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ([], "closed"),
        ([OK + b"Content-Length: 3\r\n\r\nab"], "closed"),
        ([CHUNKED + b"3\r\nab"], "closed"),
        ([CHUNKED + b"zz\r\nab"], "HTTP"),
        ([b"SSH-2.0-OpenSSH\r\n"], "HTTP"),
        ([b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"], "HTTP"),
        ([EARLY] * 100, "HTTP"),
        ([OK + b"X: " + b"a" * (1 << 17)], "no body"),
        ([CHUNKED + b"1\r\nx\r\n0\r\nX: " + b"a" * (1 << 17)], "no body"),
        ([CHUNKED + b"1;" + b"a" * (1 << 17)], "no body"),
        ([OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc"], "HTTP"),
    ],
)
def test_what_is_no_answer_is_told(says: list[bytes], told: str) -> None:
    with pytest.raises(ConnectionError, match=told):
        answered(*says)


def test_chunks_of_one_byte_hold_the_loop_for_no_longer_than_their_teams_share() -> None:
    async def read() -> float:
        answer = ProgramAnswer(Program(CHUNKED, *[b"1\r\nx\r\n" * 11_000] * 40), "v")
        async with longest_stand() as stood_s:
            await answer.begin()
            with pytest.raises(ConnectionError):
                async for _ in answer.pieces():
                    pass
        return stood_s[0]

    assert anyio.run(read) < 0.025


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ([(b"content-length", b"3")], b"content-length: 3\r\n\r\nabc"),
        (
            [(b"transfer-encoding", b"chunked")],
            b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        ),
    ],
)
def test_a_question_is_sent_as_it_came(headers: list[tuple[bytes, bytes]], sent: bytes) -> None:
    program = Program()

    async def body():
        for piece in (b"a", b"", b"bc"):
            yield piece

    anyio.run(ask, program, "POST", b"/x?y=%20", headers, body())
    assert program.got == b"POST /x?y=%20 HTTP/1.1\r\n" + sent
