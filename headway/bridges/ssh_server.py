"""An SSH server for the `ssh` that has started this process, on the pipe between the two.

Each session, subsystem and forwarded connection that `ssh` asks for is a command in the container
of a run, as `headway exec` starts one. Nothing listens anywhere, and no image needs anything of
SSH (docs/development/adr/0053-ssh-ends-on-the-users-machine.md).
"""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import getsource
from shlex import quote
from typing import Any

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from headway.bridges.sent import headway_ssh
from headway.client.ways import open_way_in_loop
from headway.credentials import Address
from headway.errors import GatewayRefused, GatewayUnreachable, HeadwayError, NotInstalled
from headway.model.exec_messages import (
    ExecCommand,
    ExecEnd,
    ExecRefusal,
    StandardStream,
    StreamData,
    WindowSize,
    read,
    written,
)
from headway.views.terminal import plain

try:
    import asyncssh
except ImportError as error:
    raise NotInstalled("connections of ssh", "asyncssh", "ssh") from error

_PIECE_BYTES = 1 << 16
_LARGEST_SIDE = 10_000
_NOT_STARTED = 255
"""The exit status by which `ssh` says that itself could not do it."""
_SHELL = (
    "[ ! -r /tmp/headway-environment ] || . /tmp/headway-environment; export TERM={term};"
    ' s="$(command -v bash || command -v sh)";'
)
"""With the packages of a session's `requirements`: a command has not what was set up for it."""
_SENT = (
    'p="$(command -v python3 || command -v python)" || '
    '{ echo "the image has no Python, which copies and forwards need" >&2; exit 127; };'
    ' exec "$p" -I -c "$@"'
)
_SFTP = (
    "for p in /usr/lib/openssh /usr/lib/ssh /usr/libexec/openssh /usr/libexec; do"
    ' [ ! -x "$p/sftp-server" ] || exec "$p/sftp-server"; done; '
)
"""Where distributions have OpenSSH's own, for images with it."""


def serve(address: Address, run_id: str) -> None:
    """Be the server at the other end of the standard streams until `ssh` has left."""
    ours, theirs = socket.socketpair()
    threading.Thread(target=_give, args=(theirs,), daemon=True).start()
    back = threading.Thread(target=_tell, args=(theirs,))
    back.start()
    try:
        asyncio.run(_served(ours, address, run_id))
    finally:
        with suppress(OSError):
            ours.close()
        back.join()


def _give(there: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(0, _PIECE_BYTES):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)


def _tell(there: socket.socket) -> None:
    with suppress(OSError):
        while data := memoryview(there.recv(_PIECE_BYTES)):
            while data:
                data = data[os.write(1, data) :]


async def _served(here: socket.socket, address: Address, run_id: str) -> None:
    with suppress(asyncssh.DisconnectError):
        connection = await asyncssh.run_server(
            here,
            server_factory=lambda: _Server(address, run_id),
            # For this pipe alone, so that nobody can know it, nor has to.
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            compression_algs=None,
        )
        await connection.wait_closed()


class _Server(asyncssh.SSHServer):
    """Lets in who holds the other end of the pipe: that one has started this process."""

    def __init__(self, address: Address, run_id: str) -> None:
        self._address = address
        self._run_id = run_id

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - of the run, whoever is named
        """Nobody has to show anything: the token that the gateway asks for is this process's."""
        return False

    def session_requested(self) -> "_Session":
        """Start a command, a shell or a subsystem."""
        return _Session(self._begun, None, 3, allow_scp=False)

    def connection_requested(
        self,
        dest_host: str,
        dest_port: int,
        orig_host: str,  # noqa: ARG002
        orig_port: int,  # noqa: ARG002
    ) -> Callable[..., Awaitable[None]]:
        """Connect from within the container, for `ssh -L`, `-D` and `-W`."""
        command = ExecCommand(arguments=_sent("", "connect", dest_host, str(dest_port)))

        async def carry(given: Any, told: Any) -> None:
            with suppress(HeadwayError):  # to `ssh` it is one that was closed
                await self._carried(command, given, {StandardStream.OUTPUT: Unframed(told)})
            told.close()

        return carry

    async def _begun(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        window, shell = None, _SHELL.format(term=quote(process.term_type or "dumb"))
        if process.term_type is not None:
            window = _window(*process.term_size[:2])
        if process.subsystem is not None:
            arguments: tuple[str, ...] = _sent(_SFTP, "sftp")
        elif process.command is None:
            arguments = ("sh", "-c", f'{shell} exec "$s"')
        else:
            arguments = ("sh", "-c", f'{shell} exec "$s" -c "$0"', process.command)
        told = {StandardStream.OUTPUT: process.stdout, StandardStream.ERROR: process.stderr}
        try:
            command = ExecCommand(arguments=arguments, window=window)
            process.exit(await self._carried(command, process.stdin, told))
        except (HeadwayError, ValidationError) as error:
            why = "the command is too long" if isinstance(error, ValidationError) else str(error)
            with suppress(OSError):  # it has left; its connection may have other sessions
                process.stderr.write(f"headway: {plain(why)}\r\n".encode())
                process.exit(_NOT_STARTED)

    async def _carried(
        self,
        command: ExecCommand,
        given: "asyncssh.SSHReader[bytes]",
        told: Mapping[StandardStream, "asyncssh.SSHWriter[bytes] | Unframed"],
    ) -> int:
        """Start *command*, and carry its streams until one side ends; its exit status.

        Raises:
            GatewayRefused: The gateway, or the run's node, does not start it.
            GatewayUnreachable: The gateway does not answer, or the connection was lost.
        """
        way = await open_way_in_loop(self._address, f"/v1/runs/{self._run_id}/exec")
        async with way:
            there = asyncio.create_task(_there(given, way, written(command)))
            try:
                async for message in way:
                    match read(message):
                        case StreamData(stream, data) if stream in told:
                            told[stream].write(data)
                            await told[stream].drain()
                        case ExecEnd(exit_code=code):
                            return code
                        case ExecRefusal(why=why):
                            raise GatewayRefused(409, why)
            except (ConnectionClosed, OSError, asyncssh.Error):
                pass  # told below, where anybody is there to read it
            finally:
                there.cancel()
        raise GatewayUnreachable(self._address.url, "the connection to the command was lost")


class Unframed:
    """Tells what is in the frames of `headway_ssh.connect`, and the end of it."""

    def __init__(self, told: "asyncssh.SSHWriter[bytes]") -> None:
        """To *told*."""
        self._told, self._held = told, b""

    def write(self, data: bytes) -> None:
        """Take some bytes of the frames."""
        held = self._held + data
        while len(held) >= 2 and len(held) >= (end := 2 + int.from_bytes(held[:2], "big")):
            if end == 2:
                self._told.write_eof()
            else:
                self._told.write(held[2:end])
            held = held[end:]
        self._held = held

    async def drain(self) -> None:
        """Wait until there is room for more."""
        await self._told.drain()


class _Session(asyncssh.SSHServerProcess[bytes]):
    """One that takes SFTP for a command, too: asyncssh would serve it from this machine's files."""

    def subsystem_requested(self, subsystem: str) -> bool:
        """Whether there is such a one."""
        return subsystem == "sftp"

    def session_started(self) -> None:
        """Begin, as asyncssh does where it is no subsystem."""
        if self.subsystem is None:
            super().session_started()
            return
        channel = self._chan
        told = (
            asyncssh.SSHWriter(self, channel),
            asyncssh.SSHWriter(self, channel, asyncssh.EXTENDED_DATA_STDERR),
        )
        given = asyncssh.SSHReader(self, channel)
        if (begun := self._start_process(given, *told)) is not None:
            channel.get_connection().create_task(begun)


async def _there(
    given: "asyncssh.SSHReader[bytes]", way: ClientConnection, command: str | bytes
) -> None:
    """Pass on *command*, then what `ssh` sends; *way* is closed once that has left."""
    data = b"\0"
    with suppress(ConnectionClosed, OSError, asyncssh.Error):
        await way.send(command)
        while data:
            try:
                data = await given.read(_PIECE_BYTES)
                await way.send(written(StreamData(StandardStream.INPUT, data)))
            except asyncssh.TerminalSizeChanged as changed:
                await way.send(written(_window(changed.width, changed.height)))
            except (asyncssh.BreakReceived, asyncssh.SignalReceived):
                continue  # `exec` carries none
        await given.channel.wait_closed()
    await way.close()


def _window(columns: int, rows: int) -> WindowSize:
    """A terminal of this size; one that says nothing about it counts as the usual one."""
    return WindowSize(
        rows=min(rows or 24, _LARGEST_SIDE), columns=min(columns or 80, _LARGEST_SIDE)
    )


def _sent(first: str, *words: str) -> tuple[str, ...]:
    """The program of `sent` with these words, once *first* has not become another one."""
    return ("sh", "-c", first + _SENT, "sh", getsource(headway_ssh), *words)
