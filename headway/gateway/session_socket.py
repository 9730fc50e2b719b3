"""A WebSocket between a browser and the program of a session: messages pass as they are."""

from collections import Counter
from typing import ClassVar

import anyio
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from headway.gateway.session_headers import Headers
from headway.node.relay import ByteStream
from headway.node.shares import LOOP

_MOST_BYTES = 16 << 20
_MOST_HELD_BYTES = 64 << 20
"""Of messages of one team's programs that are not whole, or on their way to its browsers."""
_PIECE_BYTES = 1 << 10
"""Parsed at once: in frames of one byte it takes a millisecond."""
_MOST_PARTS = 256
_TOO_BIG = 1009
_NO_ANSWER, _GOING_AWAY = 1011, 1001
_HANDSHAKE_S = 30.0
_ITS_OWN = frozenset({b"host", b"origin", b"connection", b"upgrade"})


class SessionSocket:
    """One WebSocket, over a connection to the program."""

    _held: ClassVar[Counter[str]] = Counter()
    """Bytes of each team."""

    def __init__(
        self, browser: WebSocket, program: ByteStream, headers: Headers, team: str
    ) -> None:
        """Between *browser* and *program* of *team*, which is asked with *headers*."""
        self._browser = browser
        self._program = program
        self._team = team
        self._unread = memoryview(b"")
        self._parts_bytes = self._counted_bytes = 0
        known = {name: value.decode("latin-1") for name, value in headers}
        target = browser.scope["raw_path"].decode("latin-1")
        query = browser.scope["query_string"].decode("latin-1")
        address = f"ws://{known.get(b'host', 'session')}{target}" + (f"?{query}" if query else "")
        origin = known.get(b"origin")
        self._protocol = ClientProtocol(
            parse_uri(address),
            origin=None if origin is None else Origin(origin),
            subprotocols=[Subprotocol(each) for each in browser.scope["subprotocols"]] or None,
            max_size=_MOST_BYTES,
        )
        self._more = [(name, value) for name, value in headers if name not in _ITS_OWN]
        self._sending = anyio.Lock()
        """Both directions send: messages one, answers to pings the other."""
        self._parts: list[bytes] = []
        self._text = False

    async def carry(self) -> None:
        """Shake hands with the program, then with the browser, and carry messages to the end."""
        if not await self._opened():
            await self._browser.close(_NO_ANSWER, "the session's program takes no WebSocket here")
            return
        await self._browser.accept(subprotocol=self._protocol.subprotocol)
        try:
            async with anyio.create_task_group() as both:
                both.start_soon(self._to_program, both.cancel_scope)
                both.start_soon(self._to_browser, both.cancel_scope)
        finally:
            self._held[self._team] -= self._counted_bytes

    async def _opened(self) -> bool:
        request = self._protocol.connect()
        for name, value in self._more:
            request.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_request(request)
        try:
            with anyio.fail_after(_HANDSHAKE_S):
                await self._flush()
                while self._protocol.state is State.CONNECTING:
                    if not await self._take():
                        return False
        except (TimeoutError, OSError, anyio.BrokenResourceError, InvalidHandshake):
            return False
        return self._protocol.state is State.OPEN and self._protocol.handshake_exc is None

    async def _take(self) -> bool:
        """Parse a little of what the program says; False at its end."""
        if not self._unread:
            self._unread = memoryview(await self._program.receive())
        piece, self._unread = self._unread[:_PIECE_BYTES], self._unread[_PIECE_BYTES:]
        began_s = anyio.current_time()
        if piece:
            self._protocol.receive_data(bytes(piece))
        else:
            self._protocol.receive_eof()
        await LOOP.pay(self._team, anyio.current_time() - began_s)
        await self._flush()
        return len(piece) > 0

    async def _flush(self) -> None:
        if data := b"".join(self._protocol.data_to_send()):
            async with self._sending:
                await self._program.send(data)

    async def _to_program(self, scope: anyio.CancelScope) -> None:
        try:
            while True:
                message = await self._browser.receive()
                if message["type"] == "websocket.disconnect":
                    self._protocol.send_close(_GOING_AWAY)
                    await self._flush()
                    break
                text, data = message.get("text"), message.get("bytes")
                if text is not None:
                    self._protocol.send_text(text.encode())
                else:
                    self._protocol.send_binary(data or b"")
                await self._flush()
        except (OSError, anyio.BrokenResourceError, InvalidState):
            pass  # the program has closed
        scope.cancel()

    async def _to_browser(self, scope: anyio.CancelScope) -> None:
        going = True
        try:
            while going:
                for event in self._protocol.events_received():
                    if isinstance(event, Frame):
                        await self._show(event)
                going = self._protocol.state is State.OPEN and await self._take()
                if self._count() > _MOST_HELD_BYTES:
                    break
            told = _TOO_BIG if going else self._protocol.close_code
            code = told if told is not None and told not in (1005, 1006, 1015) else _GOING_AWAY
            await self._browser.close(code, self._protocol.close_reason or "")
        except (WebSocketDisconnect, OSError, RuntimeError, anyio.BrokenResourceError):
            pass  # the browser has left
        scope.cancel()

    async def _show(self, frame: Frame) -> None:
        """Pass a message on once all of its frames are there; pings were answered already."""
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        self._parts.append(bytes(frame.data))
        self._parts_bytes += len(frame.data)
        if not frame.fin:
            if len(self._parts) > _MOST_PARTS:  # each takes more memory than it has bytes
                self._parts = [b"".join(self._parts)]
            return
        data, self._parts = b"".join(self._parts), []
        if self._text:
            await self._browser.send_text(data.decode(errors="replace"))
        else:
            await self._browser.send_bytes(data)
        self._parts_bytes = 0

    def _count(self) -> int:
        """What is held of the program's team, by this and its other sockets."""
        held_bytes = len(self._protocol.reader.buffer) + self._parts_bytes
        self._held[self._team] += held_bytes - self._counted_bytes
        self._counted_bytes = held_bytes
        return self._held[self._team]
