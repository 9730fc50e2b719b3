"""Connections to runs on this node: to ports that the run's own lease has, and of commands."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import SocketStream
from anyio.to_thread import run_sync
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headway.errors import ExecRefused, HeadwayError, InvalidInput, PortClosed
from headway.model.exec_messages import (
    ExecCommand,
    ExecEnd,
    ExecMessage,
    ExecRefusal,
    ExecStarted,
    StandardStream,
    StreamData,
    WindowSize,
    read,
    written,
)
from headway.model.run import RunState
from headway.model.session import open_ports
from headway.node.shares import LOOP, in_thread
from headway.pinning import LOOPBACK
from headway.run.environment import is_being_made
from headway.run.here import connected_note, container_name
from headway.runtime.port import Execution
from headway.site import Site

MOST_OF_A_RUN = 16
"""Commands at once: each holds threads of the gateway or of the node's worker."""
MOST_OF_A_TEAM = 32
"""On one node; a team that has them all keeps no other from its own."""
_POLL_S = 0.05
_COMMAND_S = 30.0


class RunExec:
    """Starts commands in containers of *site*'s node."""

    def __init__(self, site: Site) -> None:
        """On the node of *site*."""
        self._site = site
        self._open: Counter[str] = Counter()

    async def serve(self, client: WebSocket, run_id: str, command: ExecCommand) -> None:
        """Carry between *client*, which was accepted, and *command* until one of them ends.

        A client that has left, or sends what is no message, has its command killed.
        """
        end: ExecEnd | ExecRefusal | None
        try:
            team = (await run_sync(self._site.ledger.runs.get, run_id)).team
            with self._counted(run_id, team):
                execution = await run_sync(self._begun, run_id, command)
                try:
                    await said(client, ExecStarted())
                    end = await self._carried(client, execution, run_id)
                finally:
                    with anyio.CancelScope(shield=True):
                        await run_sync(execution.close)
        except HeadwayError as error:
            end = ExecRefusal(why=str(error))
        if end is not None:
            await said(client, end)

    @contextmanager
    def _counted(self, run_id: str, team: str) -> Iterator[None]:
        """Count one more command of the run and its *team*; raises `ExecRefused`."""
        in_run, in_team = self._open[run_id], self._open[f"team {team}"]
        if in_run >= MOST_OF_A_RUN or in_team >= MOST_OF_A_TEAM:
            cause = f"{in_run} are open there, {in_team} of team {team} on its node"
            allowed = f"at most {MOST_OF_A_RUN} and {MOST_OF_A_TEAM} may be; end one of them"
            raise ExecRefused(run_id, f"{cause}, and {allowed}")
        counted = Counter([run_id, f"team {team}"])
        self._open += counted
        try:
            yield
        finally:
            self._open -= counted

    def _begun(self, run_id: str, command: ExecCommand) -> Execution:
        """*command*, started in the container of a run that runs here and now."""
        site = self._site
        lease = site.ledger.leases.of_run(run_id)
        if lease is None or lease.node != site.settings.node:
            raise ExecRefused(run_id, "it is not running; `headway show` says how it is")
        state = site.ledger.runs.get(run_id).state
        if state is not RunState.RUNNING:
            raise ExecRefused(run_id, f"it is {state.value}; try again once it runs")
        container = container_name(run_id, lease.attempt)
        # Asked after the state: the note of a container that makes one is there before it runs.
        if is_being_made(site.settings, container):
            raise ExecRefused(run_id, "its environment is being made; try again once that is done")
        return site.runtime.execute(container, command)

    async def _carried(
        self, client: WebSocket, execution: Execution, run_id: str
    ) -> ExecEnd | ExecRefusal | None:
        """How the command ended; None where the client has left before."""
        # Threads of its own: many that wait must not keep the process from anything else.
        threads = anyio.CapacityLimiter(2)
        note = connected_note(self._site.settings, run_id)

        async def used() -> None:
            while True:
                with suppress(OSError):  # the run's folder is gone, and so is the run
                    note.touch()
                await anyio.sleep(NOTE_EVERY_S)

        async def there() -> None:
            with suppress(WebSocketDisconnect, HeadwayError):
                while True:
                    message = await heard(client)
                    await run_sync(_given, execution, message, limiter=threads, **_LEFT)
            both.cancel_scope.cancel()

        async def back() -> None:
            while (piece := await run_sync(execution.read, limiter=threads, **_LEFT)) is not None:
                await said(client, piece)

        end: ExecEnd | ExecRefusal | None = None
        async with anyio.create_task_group() as both:
            both.start_soon(there)
            both.start_soon(used)
            await back()
            end = await _end(execution)
            both.cancel_scope.cancel()
        return end


_LEFT = {"abandon_on_cancel": True}
"""A thread that waits for a command ends once that is closed."""


def _given(execution: Execution, message: ExecMessage) -> None:
    """Pass on what the client says."""
    if isinstance(message, WindowSize):
        execution.resize(message)
    elif isinstance(message, StreamData) and message.stream is StandardStream.INPUT:
        if message.data:
            execution.write(message.data)
        else:
            execution.end_input()
    else:
        raise InvalidInput("message", written(message)[:40], "send input or a window's size")


async def _end(execution: Execution) -> ExecEnd | ExecRefusal:
    """How it ended, which may be later than it has closed its output."""
    while True:
        try:
            code = await run_sync(execution.exit_code)
        except HeadwayError as error:
            return ExecRefusal(why=str(error))
        if code is not None:
            return ExecEnd(exit_code=code)
        await anyio.sleep(_POLL_S)


async def commanded(client: WebSocket) -> ExecCommand:
    """What *client*, which was accepted, asks to be started.

    Raises:
        WebSocketDisconnect: It has left.
        InvalidInput: It asks something else.
    """
    try:
        with anyio.fail_after(_COMMAND_S):
            message = await heard(client)
    except TimeoutError as error:
        raise InvalidInput("message", "", f"send a command within {_COMMAND_S:.0f} s") from error
    if not isinstance(message, ExecCommand):
        raise InvalidInput("message", written(message)[:40], "begin with a command")
    return message


async def heard(client: WebSocket) -> ExecMessage:
    """The next message of *client*.

    Raises:
        WebSocketDisconnect: It has left.
        InvalidInput: It is none.
    """
    event = await client.receive()
    if event["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(event.get("code", 1000))
    text: str | None = event.get("text")
    return read(text if text is not None else event["bytes"])


async def said(client: WebSocket, message: ExecMessage) -> None:
    """Send *message*; nothing happens where *client* has left."""
    carried = written(message)
    with suppress(WebSocketDisconnect, OSError, RuntimeError):
        if isinstance(carried, bytes):
            await client.send_bytes(carried)
        else:
            await client.send_text(carried)


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
