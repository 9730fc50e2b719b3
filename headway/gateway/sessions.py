"""The pages of sessions, on a port of the gateway of their own, and so of another origin.

What a program writes into a page must not act with its reader's login. So nothing of the gateway
is served here, the gateway takes no request of a page of this origin, and a session is shown
to its owner alone (docs/development/adr/0030-sessions-have-an-origin-of-their-own.md).
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import anyio
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from headway.errors import HeadwayError, PortClosed, RunUnknown
from headway.gateway.door import PER_TOKEN_FILES, Door
from headway.gateway.pages import login_to
from headway.gateway.ports import OpenRun, RunPorts, open_run
from headway.gateway.refusals import refusal
from headway.gateway.session_answer import Headers, ProgramAnswer, ask, for_browser, for_program
from headway.model.access import Caller
from headway.model.session import session_link, session_path, session_port, session_secret
from headway.node.run_ports import ByteStream
from headway.node.shares import LOOP, in_thread
from headway.site import Site

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


_RUN = re.compile(r"/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:/.*)?", re.DOTALL)
_REFUSED = 1008


def sessions_app(site: Site, *, allowed_hosts: Sequence[str] = ("*",)) -> ASGIApp:
    """The application that leads to the sessions of *site*, for those who log in at its gateway."""
    doored = Door(
        Sessions(site),
        ledger=lambda: site.ledger,
        clock=site.clock,
        open_paths=frozenset(),
        login=lambda scope: _login(scope, site.settings.gateway_port),
        rate=PER_TOKEN_FILES,
        at_once=None,
    )
    return TrustedHostMiddleware(doored, allowed_hosts=list(allowed_hosts))


def _login(scope: Scope, port: int) -> str:
    """The login at *port* of the gateway, which leads back by its own link to the session."""
    found = _RUN.fullmatch(scope["raw_path"].decode("latin-1"))
    target = login_to(session_link(found[1]) if found else "")
    return f"//{Request(scope).url.hostname}:{port}{target}"


class Sessions:
    """Leads each request to the program of the session that its path names."""

    def __init__(self, site: Site) -> None:
        """For the sessions of *site*."""
        self._site = site
        self._ports = RunPorts(site)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or carry a WebSocket."""
        try:
            run, program = await self._program(scope)
        except HeadwayError as error:
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).close(_REFUSED)
            else:
                await refusal(error)(scope, receive, send)
            return
        secured = scope["scheme"] in ("https", "wss")
        secret = session_secret(run.lease.token)
        headers = for_program(scope["headers"], secret, "https" if secured else "http")
        try:
            if scope["type"] == "websocket":
                browser = WebSocket(scope, receive, send)
                await SessionSocket(browser, program, headers, run.record.team).carry()
            else:
                answer = await _answered(Request(scope, receive), program, headers, run)
                await answer(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await program.aclose()

    async def _program(self, scope: Scope) -> tuple[OpenRun, ByteStream]:
        """The session that is asked for, and a connection to its program."""
        found = _RUN.fullmatch(scope["raw_path"].decode("latin-1"))
        caller: Caller = scope["state"]["caller"]
        if found is None:
            raise RunUnknown("")
        run = await in_thread(self._run, caller, found[1])
        port = session_port(run.record.job, run.lease.ports)
        if port is None:
            raise PortClosed(run.record.run_id, None, "the run is no session")
        return run, await self._ports.connect(run, port)

    def _run(self, caller: Caller, run_id: str) -> OpenRun:
        return open_run(self._site, caller, run_id, alone=True)


async def _answered(
    request: Request, program: ByteStream, headers: Headers, run: OpenRun
) -> Response:
    """What the program answers, as it comes."""
    path, target = session_path(run.record.run_id), request.scope["raw_path"]
    if query := request.scope["query_string"]:
        target += b"?" + query
    chunked = "transfer-encoding" in request.headers
    if chunked:
        headers = [*headers, (b"transfer-encoding", b"chunked")]
    body = request.stream() if chunked or "content-length" in request.headers else None
    found = ProgramAnswer(program, run.record.team, has_body=request.method != "HEAD")
    broke = ""
    async with anyio.create_task_group() as both:
        if body is None:  # a body is read from there, and its sender seen to leave
            both.start_soon(_until_left, request, both.cancel_scope)
        try:
            await ask(program, request.method, target, headers, body)
            await found.begin()
        except ClientDisconnect:
            pass
        except (ConnectionError, TimeoutError) as error:
            broke = str(error) or "it sent nothing"
        both.cancel_scope.cancel()
    if broke:
        return JSONResponse({"detail": f"the session's program broke off: {broke}"}, 502)
    if not found.status:
        return Response(status_code=499)  # nobody reads it
    answer = StreamingResponse(found.pieces(), found.status)
    answer.raw_headers = for_browser(found.headers, path)
    return answer


async def _until_left(request: Request, answering: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    answering.cancel()


def by_port(port: int, sessions: ASGIApp, rest: ASGIApp) -> ASGIApp:
    """What came in at *port* is for *sessions*, all else for *rest*."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        here = scope.get("server") or ("", 0)
        chosen = sessions if scope["type"] != "lifespan" and here[1] == port else rest
        await chosen(scope, receive, send)

    return app
