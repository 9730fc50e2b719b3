"""Ports of runs, reached on the node where the run is, on behalf of its owner.

On this machine they are connected to; another node's worker carries the bytes over a WebSocket,
which is asked for as its files are: signed, over TLS, with the certificate that the ledger names.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed, WebSocketException

from headway.errors import NodeSilent, NotAllowed, PortClosed, RunUnknown
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.access import Caller, Scope
from headway.model.lease import Lease
from headway.model.run_file import signed
from headway.node.relay import CLOSED, ByteStream
from headway.node.run_ports import connect
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
        for whose, most, said in (
            (owner, MOST_AT_ONCE, "its owner"), (team, MOST_OF_A_TEAM, "its team")
        ):  # fmt: skip
            if self._open[whose] >= most:
                why = f"{most} connections to runs of {said} are open; close one first"
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
