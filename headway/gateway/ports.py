"""The ways to a run's ports on the gateway's own origin: a link, and bytes for `forward`."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from urllib.parse import urlsplit

import anyio
from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import RedirectResponse
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed, WebSocketException

from headway.errors import ExecRefused, HeadwayError, InvalidInput, PortClosed, RunUnknown
from headway.gateway.actions import note_act
from headway.gateway.door import Submitter, shown_token
from headway.gateway.errors import NodeSilent, NotAllowed
from headway.gateway.refusals import refusal
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.access import Caller, Scope
from headway.model.exec_messages import PONG_WITHIN_S, ExecCommand, ExecRefusal, read, written
from headway.model.lease import Lease
from headway.model.run_file import signed
from headway.model.session import session_path, session_port
from headway.node.run_ports import (
    CLOSED,
    ByteStream,
    RunExec,
    commanded,
    connect,
    heard,
    reason,
    relay,
    said,
)
from headway.node.shares import in_thread
from headway.pinning import only
from headway.site import Site

_CONNECT_S = 10.0
_MOST_BYTES = 1 << 20
MOST_AT_ONCE = 64
"""Connections to the runs of one user: a node's worker has room for so many of all users, and
answers nobody who asks for an output or a log once they are taken."""
MOST_OF_A_TEAM = 128
"""Connections to the runs of all its users, for the same reason."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that holds a lease, and the node that it is on."""

    record: RunRecord
    lease: Lease
    node: NodeRecord

    def is_of(self, caller: Caller) -> bool:
        """Whether it is *caller*'s own."""
        return _is_of(self.record, caller)


def _is_of(record: RunRecord, caller: Caller) -> bool:
    return (record.owner, record.team) == (caller.user, caller.team)


def open_run(site: Site, caller: Caller, run_id: str, *, alone: bool) -> OpenRun:
    """The run of this id, if *caller* may speak to its program.

    To speak to a program is to act as its owner, so it takes the rights that a cancel takes.

    Args:
        site: Whose it is.
        caller: Who asks.
        run_id: All of the id.
        alone: Operators may not either, unless it is their own: what the program shows is about
            to be shown in the caller's browser, beside the pages of the caller's own sessions.

    Raises:
        RunUnknown: There is none that the caller sees.
        NotAllowed: It is another's.
        PortClosed: It is not running.
    """
    record = site.ledger.runs.get(run_id)
    if not caller.sees(record.team):
        raise RunUnknown(run_id)
    own = _is_of(record, caller)
    if not caller.may(Scope.SUBMIT) or not (own or (caller.may(Scope.OPERATE) and not alone)):
        whose = f"run {record.name} is {record.owner or 'nobody'}'s of team {record.team}"
        raise NotAllowed(f"{whose}; only they reach its program, with the scope submit")
    lease = site.ledger.leases.of_run(run_id)
    if lease is None:
        raise PortClosed(run_id, None, f"the run is {record.state.value}")
    nodes = {each.node.name: each for each in site.ledger.nodes.all()}
    if lease.node not in nodes:
        raise NodeSilent(lease.node, "it was removed from the site")
    return OpenRun(record, lease, nodes[lease.node])


async def open_way(site: Site, node: NodeRecord, target: str) -> ClientConnection:
    """A WebSocket to *target* at the worker of another node.

    Raises:
        NodeSilent: The node does not answer.
    """
    name = node.node.name
    if not node.files_url:
        raise NodeSilent(name, "its worker does not serve them")
    where = urlsplit(node.files_url)
    now_s = site.clock.now().timestamp()
    secured = where.scheme == "https"
    try:
        return await connect_websocket(
            f"{'wss' if secured else 'ws'}://{where.netloc}{target}",
            additional_headers=signed(node.worker_token, name, "GET", target, now_s),
            ssl=only(node.files_certificate) if secured else None,
            open_timeout=_CONNECT_S,
            compression=None,
            proxy=None,
            max_size=_MOST_BYTES,
            ping_timeout=PONG_WITHIN_S,
        )
    except (OSError, TimeoutError, WebSocketException) as error:
        raise NodeSilent(name, str(error) or type(error).__name__) from error


class RunPorts:
    """Connects to ports of runs on any node of *site*."""

    def __init__(self, site: Site) -> None:
        """For the gateway of *site*, on whatever machine."""
        self._site = site
        self._open: Counter[tuple[str, ...]] = Counter()

    async def connect(self, run: OpenRun, port: int) -> ByteStream:
        """A connection to *port*, which the node lets through if it is the run's.

        Raises:
            PortClosed: It is not, nothing listens there, or its owner or team has too many open.
            NodeSilent: The node does not answer.
        """
        team, owner = (run.record.team,), (run.record.team, run.record.owner)
        for whose, most, name in (
            (owner, MOST_AT_ONCE, "its owner"), (team, MOST_OF_A_TEAM, "its team")
        ):  # fmt: skip
            if self._open[whose] >= most:
                why = f"{most} connections to runs of {name} are open; close one first"
                raise PortClosed(run.record.run_id, port, why)

        def closed() -> None:
            self._open.subtract((team, owner))

        self._open.update((team, owner))
        try:
            return _Counted(await self._connected(run, port), closed)
        except BaseException:
            closed()
            raise

    async def _connected(self, run: OpenRun, port: int) -> ByteStream:
        run_id, node = run.record.run_id, run.node
        if node.node.name == self._site.settings.node:
            return await connect(self._site, run_id, port)
        opened = await open_way(self._site, node, f"/runs/{run_id}/ports/{port}")
        return await _Carried.begun(opened, run_id, port)


class _Counted:
    """A connection whose end is told."""

    def __init__(self, stream: ByteStream, closed: Callable[[], None]) -> None:
        self._stream = stream
        self._closed: Callable[[], None] | None = closed
        self.receive = stream.receive
        self.send = stream.send

    async def aclose(self) -> None:
        """Close it, once or more often."""
        told, self._closed = self._closed, None
        if told is not None:
            told()
        await self._stream.aclose()


class _Carried:
    """A connection that a node carries over a WebSocket."""

    def __init__(self, opened: ClientConnection) -> None:
        self._opened = opened

    @classmethod
    async def begun(cls, opened: ClientConnection, run_id: str, port: int) -> "_Carried":
        """*opened*, once the node has said that it leads to the port."""
        try:
            await opened.recv()
        except ConnectionClosed as error:
            told = error.rcvd.reason if error.rcvd and error.rcvd.code == CLOSED else ""
            raise PortClosed(run_id, port, told or "its node has closed the way there") from error
        return cls(opened)

    async def receive(self) -> bytes:
        """The next bytes; none at the end."""
        try:
            data = await self._opened.recv()
        except ConnectionClosed:
            return b""
        return data if isinstance(data, bytes) else data.encode()

    async def send(self, data: bytes) -> None:
        """Send all of *data*."""
        try:
            await self._opened.send(data)
        except ConnectionClosed as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Close it."""
        await self._opened.close()


_MOST_NOTED = 10_000


def ports_of(site: Site, sessions_port: int | None) -> APIRouter:
    """The routes to the ports of *site*'s runs; *sessions_port* has the pages of sessions."""
    router = APIRouter()
    ports = RunPorts(site)
    strangers = _Strangers(site)

    @router.get("/runs/{run}/session", response_class=RedirectResponse, status_code=303)
    def session(caller: Submitter, request: Request, run: str) -> RedirectResponse:
        """Lead a browser to the page of a session: it is at another port, so of another origin."""
        found = open_run(site, caller, run, alone=True)
        if session_port(found.record.job, found.lease.ports) is None:
            raise PortClosed(found.record.run_id, None, "the run is no session")
        if sessions_port is None:
            allowed = "its port is not served here: ask an operator, or use `headway forward`"
            raise InvalidInput("HEADWAY_SESSIONS_PORT", sessions_port, allowed)
        # Without a scheme: a proxy in front may speak TLS, of which nothing is known here.
        where = f"//{request.url.hostname}:{sessions_port}{session_path(found.record.run_id)}"
        return RedirectResponse(where, status_code=303)

    @router.websocket("/runs/{run}/ports/{port}")
    async def forward(client: WebSocket, run: str, port: int) -> None:
        """Carry the bytes of one connection to a port of a run, for `headway forward`."""
        headers = dict(client.headers.items())
        caller: Caller = client.state.caller

        def open_for_caller() -> OpenRun:
            if shown_token(headers)[1]:
                raise NotAllowed("a page may not ask this: send the token in Authorization")
            found = open_run(site, caller, run, alone=False)
            strangers.note(caller, found, port)
            return found

        try:
            program = await ports.connect(await in_thread(open_for_caller), port)
        except HeadwayError as error:
            await client.accept()
            await client.close(CLOSED, reason(error))
            return
        await relay(client, program)

    return router


class _Strangers:
    """Notes that an operator looks into another's run: once a day, a page is many connections."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._noted: set[tuple[str, str, int, date]] = set()

    def note(self, caller: Caller, found: OpenRun, port: int) -> None:
        """Before anything is seen, so that nothing is of which there is no word."""
        run_id = found.record.run_id
        of_today = caller.user, run_id, port, self._site.clock.now().date()
        if found.is_of(caller) or of_today in self._noted:
            return
        note_act(self._site, caller, "run.forward", run_id, {"port": str(port)})
        if len(self._noted) >= _MOST_NOTED:
            self._noted.clear()
        self._noted.add(of_today)


def exec_in(site: Site) -> APIRouter:
    """The route to commands in *site*'s runs."""
    router = APIRouter()
    execs = RunExec(site)

    @router.websocket("/runs/{run}/exec")
    async def execute(client: WebSocket, run: str) -> None:
        """Start a command beside the run's program, and carry its streams."""
        with suppress(WebSocketDisconnect, RuntimeError):  # it has left meanwhile
            try:
                found = await _allowed(site, client, run)
            except HeadwayError as error:
                await client.send_denial_response(refusal(error))
                return
            await client.accept()
            try:
                command = await _noted(site, client, run)
                if found.node.node.name == site.settings.node:
                    await execs.serve(client, run, command)
                else:
                    await _elsewhere(site, client, found, command)
            except HeadwayError as error:
                await said(client, ExecRefusal(why=str(error)))
            await client.close()

    return router


async def _allowed(site: Site, client: WebSocket, run: str) -> OpenRun:
    """The run, if *client* may start something there."""
    if shown_token(dict(client.headers.items()))[1]:
        raise NotAllowed("a page may not ask this: send the token in Authorization")
    caller: Caller = client.state.caller
    try:
        return await in_thread(lambda: open_run(site, caller, run, alone=False))
    except PortClosed as error:
        raise ExecRefused(run, f"{error.cause}; `headway show` says more") from error


async def _noted(site: Site, client: WebSocket, run: str) -> ExecCommand:
    """What *client*, which was accepted, wants to start.

    Its first word alone is noted: the others may have secrets in them.
    """
    command = await commanded(client)
    details = {"command": command.arguments[0][:200]}
    await in_thread(note_act, site, client.state.caller, "run.exec", run, details)
    return command


async def _elsewhere(site: Site, client: WebSocket, found: OpenRun, command: ExecCommand) -> None:
    """Have the run's own node do it, and carry what *client* and that node say."""
    node = await open_way(site, found.node, f"/runs/{found.record.run_id}/exec")
    try:
        await node.send(written(command))
        async with anyio.create_task_group() as both:
            both.start_soon(_there, client, node, both.cancel_scope)
            # Where the node is lost, the client is closed without a word about the command's end.
            with suppress(ConnectionClosed):
                async for message in node:
                    await said(client, read(message))
            both.cancel_scope.cancel()
    except ConnectionClosed as error:
        raise NodeSilent(found.node.node.name, "it has closed the connection") from error
    finally:
        with anyio.CancelScope(shield=True):
            await node.close()


async def _there(client: WebSocket, node: ClientConnection, both: anyio.CancelScope) -> None:
    """Pass on what *client* says, until it has left or the node has."""
    with suppress(WebSocketDisconnect, HeadwayError, ConnectionClosed):
        while True:
            await node.send(written(await heard(client)))
    both.cancel()
