"""A WebSocket of a session whose program is slow, or has closed."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from starlette.websockets import WebSocket
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from headway.gateway import sessions
from headway.gateway.sessions import SessionSocket
from tests.unit.gateway.test_session_answer import longest_stand

SCOPE = {
    "type": "websocket", "path": "/x", "raw_path": b"/x", "query_string": b"",
    "headers": [], "subprotocols": [],
}  # fmt: skip


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
        browser = WebSocket(SCOPE, says.get, send)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as both:
                both.start_soon(SessionSocket(browser, program, [], "v").carry)
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


def relayed(program: Program) -> tuple[list[Any], float]:
    """What a browser gets of a program, and the longest time the loop stood."""
    got: list[Any] = []

    async def whole() -> float:
        async def send(message: Any) -> None:
            got.append(message)

        async def receive() -> Any:
            if got:
                await anyio.sleep_forever()
            return {"type": "websocket.connect"}

        async with longest_stand() as stood_s:
            with anyio.move_on_after(30):
                await SessionSocket(WebSocket(SCOPE, receive, send), program, [], "v").carry()
        return stood_s[0]

    return got, anyio.run(whole)


class Speaks(Program):
    """Says frames after its handshake, and no more."""

    def __init__(self, *frames: bytes) -> None:
        super().__init__()
        self._frames = frames

    def tell(self) -> None:
        super().tell()
        for frame in (*self._frames, b""):
            self.answers.put_nowait(frame)


def test_frames_of_one_byte_hold_the_loop_for_no_longer_than_their_teams_share() -> None:
    flood = b"\x8a\x01x" * 22_000  # pongs, of which nothing is passed on
    _, longest_s = relayed(Speaks(*[flood] * 3, b"\x82\x01y"))
    assert longest_s < 0.025


def test_a_team_has_so_much_on_its_way_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MOST_HELD_BYTES", 1 << 20)
    whole = b"\x82\x7f" + (1 << 18).to_bytes(8, "big") + b"x" * (1 << 18)
    endless = b"\x02\x7f" + (1 << 21).to_bytes(8, "big") + b"x" * (1 << 21)
    got, _ = relayed(Speaks(*[whole] * 8, endless))
    assert [each["type"] for each in got[1:-1]] == ["websocket.send"] * 8
    assert got[-1]["code"] == 1009
    assert SessionSocket._held["v"] == 0


def test_many_small_parts_of_a_message_are_kept_as_few() -> None:
    parts = b"\x02\x01a" + b"\x00\x01a" * 2000 + b"\x80\x01a"
    got, _ = relayed(Speaks(parts))
    assert got[1]["bytes"] == b"a" * 2002
