"""Connections to the ports of runs on this node: those that the run's own lease has, no others."""

from contextlib import suppress
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import SocketStream
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headway.errors import PortClosed
from headway.model.run import RunState
from headway.model.session import open_ports
from headway.node.shares import LOOP, in_thread
from headway.pinning import LOOPBACK
from headway.run.here import connected_note, container_name
from headway.site import Site

CLOSED = 4404
"""Code with which a WebSocket is closed whose port cannot be reached; the reason says why."""
_MOST_REASON_BYTES = 123
"""The protocol has room for no more."""


class ByteStream(Protocol):
    """One connection to a port."""

    async def receive(self) -> bytes:
        """The next bytes; none at the end."""

    async def send(self, data: bytes) -> None:
        """Send all of *data*."""

    async def aclose(self) -> None:
        """Close it."""


def reason(error: Exception) -> str:
    """What *error* says, as far as a closing WebSocket has room for it."""
    return str(error).encode()[:_MOST_REASON_BYTES].decode(errors="ignore")


async def relay(client: WebSocket, stream: ByteStream) -> None:
    """Accept *client*, and carry bytes between it and *stream* until one of them ends."""

    async def there() -> None:
        try:
            while True:
                await stream.send(await client.receive_bytes())
        except (WebSocketDisconnect, KeyError, OSError, anyio.BrokenResourceError):
            pass  # it has left, sent text, or the program has closed
        both.cancel_scope.cancel()

    async def back() -> None:
        try:
            while data := await stream.receive():
                await client.send_bytes(data)
        except (WebSocketDisconnect, OSError):
            pass  # it has left
        both.cancel_scope.cancel()

    try:
        with suppress(WebSocketDisconnect, OSError, RuntimeError):  # it has left already
            await client.accept()
            await client.send_bytes(b"")  # so that it knows at once that it leads there
            async with anyio.create_task_group() as both:
                both.start_soon(there)
                both.start_soon(back)
    finally:
        with anyio.CancelScope(shield=True):
            await stream.aclose()
    if client.client_state is WebSocketState.CONNECTED:
        with suppress(WebSocketDisconnect, OSError, RuntimeError):  # it has left meanwhile
            await client.close()


_CONNECT_S = 5.0
NOTE_EVERY_S = 2.0
"""How often who is connected to a run leaves word of it: a session without is ended."""
_MOST_BYTES = 1 << 16


def check_open(site: Site, run_id: str, port: int) -> tuple[int, str]:
    """Let nothing through to a port that is not the run's own, here and now.

    Returns:
        The port of this node's loopback that leads to it, and the run's team.

    Raises:
        PortClosed: It is not.
    """
    lease = site.ledger.leases.of_run(run_id)
    if lease is None or lease.node != site.settings.node:
        raise PortClosed(run_id, port, "the run is not running")
    record = site.ledger.runs.get(run_id)
    if record.state is not RunState.RUNNING:
        raise PortClosed(run_id, port, f"the run is {record.state.value}")
    if port not in open_ports(record.job, lease.ports):
        raise PortClosed(run_id, port, "the run has no such port")
    if not site.runtime.serves(container_name(run_id, lease.attempt), lease.ports[port]):
        raise PortClosed(run_id, port, "its program does not listen there")
    return lease.ports[port], record.team


async def connect(site: Site, run_id: str, port: int) -> "PortConnection":
    """A connection to what listens at *port* of a run on *site*'s node.

    Raises:
        PortClosed: It is not the run's port, or nothing listens there.
    """
    here, team = await in_thread(check_open, site, run_id, port)
    try:
        with anyio.fail_after(_CONNECT_S):
            # Docker publishes there, and nowhere else; without an engine programs listen there.
            stream = await anyio.connect_tcp(LOOPBACK[0], here)
    except (OSError, TimeoutError) as error:
        raise PortClosed(run_id, port, "its program does not listen there") from error
    return PortConnection(stream, connected_note(site.settings, run_id), team)


class PortConnection:
    """One connection to a run's program; while it is open, the run's note of connections is new."""

    def __init__(self, stream: SocketStream, note: Path, team: str) -> None:
        """Over *stream*, whose bytes are *team*'s; *note* is the file that is touched."""
        self._stream = stream
        self._team = team
        self._note = note
        self._touch()

    async def receive(self) -> bytes:
        """The next bytes; none at the end."""
        while True:
            with anyio.move_on_after(NOTE_EVERY_S):
                try:
                    data = await self._stream.receive(_MOST_BYTES)
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return b""
                break
            self._touch()
        await LOOP.moved(self._team, len(data))
        return data

    async def send(self, data: bytes) -> None:
        """Send all of *data*."""
        await self._stream.send(data)

    async def aclose(self) -> None:
        """Close it."""
        self._touch()
        await self._stream.aclose()

    def _touch(self) -> None:
        with suppress(OSError):  # the run's folder is gone, and so is the run
            self._note.touch()
