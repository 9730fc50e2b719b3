"""Serves the files of this node's runs to the site's gateway, which shows them to people.

A thread of the worker with a loop of its own. On a site of one machine it listens on loopback;
where other machines are, on the node's address, with a certificate that is made at each start
and that the ledger hands to the gateway. Each request is signed with the worker's token, which
is in the ledger too: nothing else on the network is answered.
"""

import heapq
import logging
import re
import socket
import threading
from contextlib import suppress
from pathlib import Path

import uvicorn
from starlette.datastructures import Headers, QueryParams
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from headway.durable import replace_file
from headway.errors import InvalidInput, LedgerError, PortClosed, RunUnknown
from headway.model.run_file import EXPIRES, NONCE, why_refused
from headway.node.certificate import own_certificate
from headway.node.file_answers import ASKING, FileAnswers, FileRequest
from headway.node.protocols import bounds, listening
from headway.node.run_ports import CLOSED, RunExec, commanded, connect, reason, relay
from headway.node.shares import WHOSE
from headway.run.rendezvous import own_address
from headway.site import Site

_MOST = 50_000
"""Ten megabytes."""


class Once:
    """The nonces of the requests that were answered.

    Of more than are kept those that expire first are forgotten, and from then on nothing is
    answered that expires as early as they do: a forgotten one is not answered again either.
    A worker that is started anew forgets all of them, and signs with another key.
    """

    def __init__(self, most: int = _MOST) -> None:
        """Keep *most* of them."""
        self._most = most
        self._nonces: set[str] = set()
        self._by_expiry: list[tuple[int, str]] = []
        self._forgotten_s = 0

    def take(self, nonce: str, expires_s: int) -> bool:
        """Whether a request is to be answered, which has been found to be signed and in time."""
        if expires_s <= self._forgotten_s or nonce in self._nonces:
            return False
        self._nonces.add(nonce)
        heapq.heappush(self._by_expiry, (expires_s, nonce))
        if len(self._by_expiry) > self._most:
            self._forgotten_s, forgotten = heapq.heappop(self._by_expiry)
            self._nonces.discard(forgotten)
        return True


log = logging.getLogger(__name__)

PREFIX = "/runs/"
_PORT = re.compile(r"/runs/([0-9a-f-]{36})/ports/([0-9]{1,5})")
_EXEC = re.compile(r"/runs/([0-9a-f-]{36})/exec")
_MOST_AT_ONCE = 1024
_LOOPBACK = "127.0.0.1"


def files_app(site: Site, *, key: str) -> ASGIApp:
    """The application for the node of *site*; *key* signs what it answers."""
    node, clock, answers = site.settings.node, site.clock, FileAnswers(site.settings, site.clock)
    once, execs = Once(), RunExec(site)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        raw = scope["raw_path"].decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        target = f"{raw}?{query}" if query else raw
        method = scope.get("method", "GET")  # uvicorn is told that there is no lifespan
        now_s = clock.now().timestamp()
        why = why_refused(key, node, method, target, headers, now_s=now_s)
        if not why and not once.take(headers[NONCE], int(headers[EXPIRES])):
            why = "it was answered before"
        if scope["type"] == "websocket":
            client = WebSocket(scope, receive, send)
            if not why and (found := _EXEC.fullmatch(raw)):
                await _executed(client, execs, found[1])
            else:
                await _relayed(client, site, raw, why)
            return
        if why or method not in ("GET", "HEAD") or not raw.startswith(PREFIX):
            answer = JSONResponse({"detail": why or "no such address"}, 403 if why else 404)
            await answer(scope, receive, send)
            return
        run_id, _, what = raw.removeprefix(PREFIX).partition("/")
        asked = FileRequest(run_id, what, QueryParams(query), headers, head=method == "HEAD")
        WHOSE.set(asked.params.get(ASKING, ""))
        await (await answers.answer(asked))(scope, receive, send)

    return app


async def _relayed(client: WebSocket, site: Site, raw: str, why_refused: str) -> None:
    """Carry bytes between the gateway and a port of a run, as the gateway asks at *raw*."""
    found = _PORT.fullmatch(raw)
    if why_refused or found is None:
        await client.close(reason=why_refused)
        return
    try:
        program = await connect(site, found[1], int(found[2]))
    except (PortClosed, RunUnknown, LedgerError) as error:
        await client.accept()
        await client.close(code=CLOSED, reason=reason(error))
        return
    await relay(client, program)


async def _executed(client: WebSocket, execs: RunExec, run_id: str) -> None:
    """Start a command in a run's container, as the gateway asks, and carry its streams."""
    with suppress(WebSocketDisconnect, InvalidInput, RuntimeError):  # it has left meanwhile
        await client.accept()
        await execs.serve(client, run_id, await commanded(client))
        await client.close()


def serve_files(site: Site) -> None:
    """Listen in a thread, and tell the ledger where; for as long as this process lives.

    Raises:
        InvalidInput: The address or the port cannot be listened on.
    """
    settings = site.settings
    # A site's own database is on a socket of its machine, so no other machine has a node of it.
    host = _LOOPBACK if settings.owns_database else own_address(settings)
    serve_on(site, host, secured=host != _LOOPBACK)


def serve_on(site: Site, host: str, *, secured: bool) -> None:
    """As `serve_files`, at the address *host*; *secured* by a certificate of its own."""
    settings = site.settings
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    port = settings.files_port or _port_before(site, host, family)
    try:
        opened = listening(host, port)
    except OSError as error:
        where = f"{host}:{settings.files_port}"
        allowed = (
            f"outputs and logs of this node cannot be read from elsewhere ({error}): set "
            "HEADWAY_ADDRESS to an address of this machine, or another port"
        )
        raise InvalidInput("HEADWAY_FILES_PORT", where, allowed) from error
    pair = own_certificate(settings.state_dir, site.clock) if secured else None
    key, node = site.worker_token, settings.node
    config = uvicorn.Config(
        files_app(site, key=key),
        lifespan="off",
        **bounds(),
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_AT_ONCE,
        ssl_certfile=pair.certificate if pair else None,
        ssl_keyfile=pair.key if pair else None,
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, args=([opened],), name="files", daemon=True).start()
    shown = f"[{host}]" if family is socket.AF_INET6 else host
    port = opened.getsockname()[1]
    replace_file(_port_note(site), str(port))
    url = f"{'https' if pair else 'http'}://{shown}:{port}"
    certificate = pair.certificate.read_text() if pair else ""
    site.ledger.nodes.serves_files(node, key, url=url, certificate=certificate)
    log.info("files of runs are served at %s", url)


def _port_note(site: Site) -> Path:
    return site.settings.state_dir / "files.port"


def _port_before(site: Site, host: str, family: socket.AddressFamily) -> int:
    """The port of this node's last worker, if it is free; else 0.

    The other nodes have packet rules for it, and would get another one with each start.
    """
    try:
        port = int(_port_note(site).read_text())
        socket.create_server((host, port), family=family).close()
    except (OSError, ValueError):
        return 0
    return port
