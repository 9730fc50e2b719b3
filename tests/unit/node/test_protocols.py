"""A WebSocket whose client says more than anybody takes from it; a socket that answers at once."""

import asyncio
import socket as sockets
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from headway.node.protocols import BoundedSocket, bounds, listening

HELLO = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
WORD = b"\x82\x81\0\0\0\0x"
PING = b"\x89\xfd\0\0\0\0" + b"p" * 125


class Wire(asyncio.Transport):
    """Notes what is written; the client reads nothing of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.reading = b"", True

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...


async def opened(app: Any) -> tuple[BoundedSocket, Wire]:
    config = uvicorn.Config(app, **bounds())
    config.load()
    socket, wire = BoundedSocket(config, ServerState(), {}), Wire()
    socket.connection_made(wire)
    socket.data_received(HELLO)
    await settled()
    assert wire.written.startswith(b"HTTP/1.1 101")
    return socket, wire


async def settled() -> None:
    for _ in range(2000):
        await asyncio.sleep(0)
    await asyncio.sleep(0.2)


def test_messages_that_the_application_does_not_take_are_not_parsed() -> None:
    async def tried() -> None:
        takes, got = asyncio.Event(), []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await takes.wait()
            while len(got) < 5000:
                got.append(await receive())

        socket, wire = await opened(app)
        socket.data_received(WORD * 5000)
        await settled()
        assert socket.queue.qsize() < 200
        assert not wire.reading
        takes.set()
        async with asyncio.timeout(30):
            while len(got) < 5000:  # noqa: ASYNC110 - the application is none of anybody's tasks
                await asyncio.sleep(0.01)
        assert {each["bytes"] for each in got} == {b"x"}

    asyncio.run(tried())


def test_pings_whose_answers_nobody_reads_are_not_answered_for_ever() -> None:
    async def tried() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await receive()

        socket, wire = await opened(app)
        before = len(wire.written)
        socket.pause_writing()
        socket.data_received(PING * 2000)
        await settled()
        assert len(wire.written) - before < 2048
        socket.resume_writing()
        async with asyncio.timeout(30):
            while len(wire.written) - before < 2000 * 127:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)

    asyncio.run(tried())


def test_the_end_of_an_answer_does_not_wait_until_its_beginning_was_received() -> None:
    with (
        listening("127.0.0.1", 0) as opened,
        sockets.create_connection(opened.getsockname()),
        opened.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY)
