"""HTTP and WebSocket connections whose sender cannot keep the event loop for itself.

A compiled parser reads the requests, and each has bounds: on its head, on the number of pieces its
body comes in, on the seconds until it is whole. Who is answered before all of a body has come is
read on for a moment, so that the answer arrives, and then left. WebSocket frames are parsed in
Python, some ten microseconds each however small: the frames of one team get a share of the time.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, cast

from httptools import HttpParserError
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from headway.model.exec_messages import PONG_WITHIN_S
from headway.node.shares import LOOP, address

MOST_HEAD_BYTES = 1 << 16
MOST_HEAD_LINES = 200
_MOST_WAITING = 8
"""Requests sent ahead on one connection while another is answered."""
_FREE_PIECES = 1000
_LEAST_PIECE_BYTES = 256
"""Pieces of a body beyond the free ones are so large on average."""
_LEAST_BODY_SHARE = 16
"""As many bytes of a body come for each that only says how it is cut."""
_LINGER_S = 1.0
_LINGER_BYTES = 1 << 20
_PIECE_BYTES = 1 << 10
_MOST_FRAGMENTS = 256
MOST_MESSAGE_BYTES = 2 << 20
"""Of one WebSocket message."""


def bounds() -> dict[str, Any]:
    """What `uvicorn.Config` needs to serve with these bounds."""
    return {
        "http": BoundedHttp,
        "ws": BoundedSocket,
        "ws_max_size": MOST_MESSAGE_BYTES,
        "ws_per_message_deflate": False,
        "ws_ping_timeout": PONG_WITHIN_S,
    }


def listening(host: str, port: int) -> socket.socket:
    """A socket at *port* of the address *host* for `uvicorn.Server.run`.

    Raises:
        OSError: It cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.create_server((host, port), family=family)
    # asyncio sets it on sockets of its own alone; without it an answer may take 40 ms more.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


class _Excess(HttpParserError):
    """Raised within the parser, which gives the connection up."""


class _Transport:
    """A transport that is read only while both its protocol and the bounds want it."""

    def __init__(self, transport: asyncio.Transport, on_close: Callable[[], bool]) -> None:
        self._transport = transport
        self._on_close = on_close
        self.paused: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self, why: str = "protocol") -> None:
        if not self.paused:
            self._transport.pause_reading()
        self.paused.add(why)

    def resume_reading(self, why: str = "protocol") -> None:
        self.paused.discard(why)
        if not self.paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Close, at once or after a moment, as the protocol decides."""
        if not self._on_close():
            self._transport.close()


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's own on httptools, with bounds on what a request may be."""

    request_limit_s: ClassVar[float] = 30.0
    """From the connection, or the first byte of a later request, to the last byte of its body."""
    _limit: asyncio.TimerHandle | None = None
    _whole = False
    _head_done = False
    _head_bytes = 0
    _lines = 0
    _pieces = 0
    _body_bytes = 0
    _other_bytes = 0
    """Beside the body behind a head: sizes of its pieces, and lines that nobody reads."""
    _discarded: int | None = None
    """Bytes that were read and thrown away since the last answer; None before that."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Like uvicorn's own."""
        super().__init__(*args, **kwargs)
        self._app, self.app = self.app, self._answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(cast("asyncio.Transport", _Transport(transport, self._lingers)))
        self._set_limit()

    def data_received(self, data: bytes) -> None:
        """Parse it; the time that is left until the request is whole grows by nothing."""
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > _LINGER_BYTES:
                self.transport.abort()
            return
        if self._head_done:
            self._other_bytes += len(data)
        else:
            self._head_bytes += len(data)
        self._whole = False
        super().data_received(data)
        # What the parser keeps of a line grows until that ends.
        other_bytes = self._other_bytes if self._head_done else self._head_bytes
        if other_bytes > MOST_HEAD_BYTES + self._body_bytes // _LEAST_BODY_SHARE:
            self.send_400_response("The request is too long beside its body.")
        if self._whole:
            self._lift_limit()
        elif self._limit is None and self._discarded is None:
            self._set_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._lift_limit()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Count anew."""
        super().on_message_begin()
        self._head_done, self._lines, self._pieces, self._body_bytes = False, 0, 0, 0
        self._other_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what comes behind a body is none, and is dropped."""
        self._lines += 1
        if self._lines > MOST_HEAD_LINES:
            raise _Excess
        if not self._head_done:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuse what two readers could read in two ways, then answer."""
        named = [name for name, _ in self.headers]
        encodings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        hosts = named.count(b"host")
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise _Excess
        if not self.url.startswith(b"/"):  # of a proxy, which this is not
            raise _Excess
        lengths = named.count(b"content-length")
        if encodings not in ([], [b"chunked"]) or lengths > 1:
            raise _Excess
        # The parser takes what comes behind for another protocol, or for the next request: a body
        # would be one. A WebSocket that begins in another way is never answered, nor left.
        is_get = self.parser.get_method() == b"GET"  # another one may be CONNECT
        if self.parser.should_upgrade() and (lengths or encodings or not is_get):
            raise _Excess
        if len(self.pipeline) >= _MOST_WAITING:
            raise _Excess
        self._head_done, self._head_bytes = True, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body, unless it comes in too many."""
        self._pieces += 1
        self._body_bytes += len(body)
        self._other_bytes = max(self._other_bytes - len(body), 0)
        if self._pieces > _FREE_PIECES + self._body_bytes // _LEAST_PIECE_BYTES:
            raise _Excess
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of the request has come."""
        self._whole, self._head_done = True, False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse it, unless an answer is on its way already."""
        answering: RequestResponseCycle | None = self.cycle
        if answering is not None and answering.response_started:
            self.transport.close()
        else:
            super().send_400_response(msg)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell who is answered before its body has come that the connection ends then."""
        cycle = cast("RequestResponseCycle", receive.__self__)  # type: ignore[attr-defined]

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and cycle.more_body:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, told)

    def _lingers(self) -> bool:
        """Close in a moment if more is being sent: a reset would overtake the answer."""
        answering: RequestResponseCycle | None = self.cycle
        incomplete = not self._whole or (answering is not None and answering.more_body)
        if self._discarded is not None or not incomplete:
            return self._discarded is not None
        self._discarded = 0
        self._lift_limit()
        self.flow.resume_reading()
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.abort)
        return True

    def _set_limit(self) -> None:
        self._limit = self.loop.call_later(self.request_limit_s, self.transport.abort)

    def _lift_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


class BoundedSocket(WebSocketsSansIOProtocol):
    """uvicorn's own; the frames of one team take at most a tenth of the event loop's time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Like uvicorn's own."""
        super().__init__(*args, **kwargs)
        self._waiting: deque[bytes] = deque()
        self._is_stalled = False
        """Whether what waits is parsed only once what came of it before has been taken."""

    def connection_made(self, transport: Any) -> None:
        """Read from now on."""
        held = transport._transport if isinstance(transport, _Transport) else transport  # noqa: SLF001
        super().connection_made(cast("asyncio.Transport", _Transport(held, lambda: False)))

    def data_received(self, data: bytes) -> None:
        """Parse it when the team's share allows; until then nothing more is read."""
        self._waiting.extend(data[i : i + _PIECE_BYTES] for i in range(0, len(data), _PIECE_BYTES))
        if len(self._waiting) > 0 and not self._is_held():
            self._parse()

    async def send(self, message: Any) -> None:
        """Send it, and wait until most of it has left: who sends has it until then."""
        await super().send(message)
        self._wake()
        await self.writable.wait()

    async def receive(self) -> Any:
        """The next message; those behind it are parsed when none is left."""
        message = await super().receive()
        self._wake()
        return message

    def resume_writing(self) -> None:
        """Answer further pings: their answers are read."""
        super().resume_writing()
        self._wake()

    def handle_cont(self, event: Frame) -> None:
        """Keep a fragment; many small ones as one, since each takes more memory than it has."""
        if len(self.frames) >= _MOST_FRAGMENTS:
            self.frames = [b"".join(self.frames)]
        super().handle_cont(event)

    def _is_held(self) -> bool:
        return "share" in cast("_Transport", self.transport).paused

    def _parse(self) -> None:
        """Parse one piece, and go on when it is this team's turn again."""
        if not self._waiting or self.disconnected:
            self.transport.resume_reading("share")  # type: ignore[call-arg]
            return
        now_s, whose = self.loop.time(), self._whose()
        wait_s = LOOP.wait_s(whose, now_s)
        if wait_s <= 0:
            super().data_received(self._waiting.popleft())
            LOOP.charge(whose, now_s, self.loop.time() - now_s)
        if not self._waiting:
            self.transport.resume_reading("share")  # type: ignore[call-arg]
            return
        self.transport.pause_reading("share")  # type: ignore[call-arg]
        self._is_stalled = self._is_full()
        if not self._is_stalled:
            self.loop.call_later(max(wait_s, 0.0), self._parse)

    def _is_full(self) -> bool:
        """Whether messages wait for the application, or answers to pings for the client."""
        return self.read_paused or not self.writable.is_set()

    def _wake(self) -> None:
        if self._is_stalled and not self._is_full():
            self._is_stalled = False
            self.loop.call_soon(self._parse)

    def _whose(self) -> str:
        caller = getattr(self, "scope", {}).get("state", {}).get("caller")
        return caller.team if caller is not None else address(self.client)
