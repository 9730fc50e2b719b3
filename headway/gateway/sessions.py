"""The pages of sessions, on a port of the gateway of their own, and so of another origin.

What a program writes into a page must not act with its reader's login. So nothing of the gateway
is served here, the gateway takes no request of a page of this origin, and a session is shown
to its owner alone (docs/adr/0030-sessions-have-an-origin-of-their-own.md).
"""

import re
from collections.abc import Sequence

import anyio
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from headway.errors import HeadwayError, PortClosed, RunUnknown
from headway.gateway.door import PER_TOKEN_FILES, Door
from headway.gateway.refusals import refusal
from headway.gateway.run_ports import OpenRun, RunPorts, open_run
from headway.gateway.session_answer import ProgramAnswer, ask
from headway.gateway.session_headers import Headers, for_browser, for_program
from headway.gateway.session_socket import SessionSocket
from headway.model.access import Caller
from headway.model.session import session_path, session_port, session_secret
from headway.node.relay import ByteStream
from headway.node.shares import in_thread
from headway.site import Site

_RUN = re.compile(r"/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:/.*)?", re.DOTALL)
_REFUSED = 1008


def sessions_app(site: Site, *, allowed_hosts: Sequence[str] = ("*",)) -> ASGIApp:
    """The application that leads to the sessions of *site*, for those who log in at its gateway."""
    doored = Door(
        Sessions(site),
        ledger=lambda: site.ledger,
        clock=site.clock,
        open_paths=frozenset(),
        login="",
        rate=PER_TOKEN_FILES,
    )
    return TrustedHostMiddleware(doored, allowed_hosts=list(allowed_hosts))


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
