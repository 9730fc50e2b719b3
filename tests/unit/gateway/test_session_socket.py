"""A WebSocket of a session whose program is slow, or has closed."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from starlette.websockets import WebSocket
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from headway.gateway.session_socket import SessionSocket


class Program:
    """A connection to a program, of which one task at a time may send, as with a real one."""

    def __init__(self) -> None:
        self.protocol = ServerProtocol()
        self.got, self.pongs = [], 0
        self.reads = anyio.Event()
        self.answers = asyncio.Queue[bytes]()
        self._guard = anyio.ResourceGuard("sending to")

    async def send(self, data: bytes) -> None:
        with self._guard:
            if self.protocol.state.name == "OPEN":
                await self.reads.wait()
            self.protocol.receive_data(data)
            for event in self.protocol.events_received():
                if isinstance(event, Frame):
                    self.got.append(event.opcode)
                else:
                    self.protocol.send_response(self.protocol.accept(event))
                    self.tell()

    def tell(self) -> None:
        for data in self.protocol.data_to_send():
            self.answers.put_nowait(data)

    async def receive(self) -> bytes:
        return await self.answers.get()

    async def aclose(self) -> None: ...


def carried(does: Callable[[Program, Any], Any]) -> Program:
    """What *does* with a program and the browser's way to send, while their messages pass."""

    async def whole() -> Program:
        program = Program()
        says = asyncio.Queue[dict[str, Any]]()

        async def send(_: object) -> None: ...

        says.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket", "path": "/x", "raw_path": b"/x", "query_string": b"",
            "headers": [], "subprotocols": [],
        }  # fmt: skip
        browser = WebSocket(scope, says.get, send)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as both:
                both.start_soon(SessionSocket(browser, program, []).carry)
                await does(program, says)
        return program

    return anyio.run(whole)


def test_a_ping_while_a_message_waits_for_a_slow_program_ends_nothing() -> None:
    async def does(program: Program, says: Any) -> None:
        says.put_nowait({"type": "websocket.receive", "text": "large"})
        await anyio.wait_all_tasks_blocked()
        program.protocol.send_ping(b"alive?")
        program.tell()
        await anyio.wait_all_tasks_blocked()
        program.reads.set()
        await anyio.wait_all_tasks_blocked()
        says.put_nowait({"type": "websocket.disconnect", "code": 1000})

    assert carried(does).got == [Opcode.TEXT, Opcode.PONG, Opcode.CLOSE]


@pytest.mark.parametrize("last", ["receive", "disconnect"])
def test_what_a_browser_says_to_a_program_that_has_closed_is_no_error(last: str) -> None:
    async def does(program: Program, says: Any) -> None:
        await anyio.wait_all_tasks_blocked()
        program.protocol.send_close(1000)
        program.tell()
        says.put_nowait({"type": f"websocket.{last}", "text": "late", "code": 1000})

    carried(does)
