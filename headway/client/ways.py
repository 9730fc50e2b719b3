"""Ways to the programs of runs through the gateway: to their ports, and to commands beside them."""

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection as LoopConnection
from websockets.asyncio.client import connect as connect_in_loop
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from headway.client.connection import refusal
from headway.credentials import Address
from headway.errors import GatewayRefused, GatewayUnreachable, HeadwayError, InvalidInput
from headway.model import exec_messages as messages
from headway.pinning import LOOPBACK, refused_certificate, trust

_PIECE_BYTES = 1 << 16


def open_port(address: Address, run_id: str, port: int) -> ClientConnection:
    """A connection to *port* of a run, whose bytes are binary messages.

    Raises:
        GatewayRefused: The port cannot be reached, or not by this token.
        GatewayUnreachable: The gateway does not answer.
    """
    opened = open_way(address, f"/v1/runs/{run_id}/ports/{port}")
    try:
        opened.recv()  # it leads there
    except ConnectionClosed as error:
        told = error.rcvd.reason if error.rcvd else "the gateway has closed the way there"
        raise GatewayRefused(409, told) from error
    return opened


def _listen(port: int) -> socket.socket:
    return socket.create_server((LOOPBACK[0], port))


class Forward:
    """A port of this machine's loopback that leads to a port of a run, until it is closed."""

    def __init__(
        self,
        address: Address,
        run_id: str,
        port: int,
        *,
        local_port: int | None,
        said: Callable[[str], None],
    ) -> None:
        """Listen; *said* is told why a connection could not be carried.

        Args:
            address: The gateway, and who asks.
            run_id: The run.
            port: One of its ports.
            local_port: Of this machine; any free one if 0. None: *port*, or any free one where
                another program has that, such as the run itself on a node.
            said: Is given lines for people.

        Raises:
            InvalidInput: Another program has *local_port*, or it is not for everybody.
        """
        self._address = address
        self._run_id = run_id
        self._port = port
        self._said = said
        try:
            self._listening = _listen(port if local_port is None else local_port)
        except OSError as error:
            if local_port is not None:
                allowed = f"it cannot be listened on here ({error.strerror}): give another one"
                raise InvalidInput("--local-port", local_port, allowed) from None
            self._listening = _listen(0)
        # The end of an answer does not wait for the receipt of its beginning.
        self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_port: int = self._listening.getsockname()[1]

    def serve(self) -> None:
        """Carry connections until `close`."""
        while True:
            try:
                here, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(here,), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _carry(self, here: socket.socket) -> None:
        with here:
            try:
                there = open_port(self._address, self._run_id, self._port)
            except HeadwayError as error:
                self._said(str(error))
                return
            with there:
                back = threading.Thread(target=_back, args=(there, here), daemon=True)
                back.start()
                with suppress(OSError, ConnectionClosed):
                    while data := here.recv(_PIECE_BYTES):
                        there.send(data)
            back.join()


def _back(there: ClientConnection, here: socket.socket) -> None:
    with suppress(OSError, ConnectionClosed):
        while True:
            data = there.recv()
            here.sendall(data if isinstance(data, bytes) else data.encode())
    with suppress(OSError):
        here.shutdown(socket.SHUT_RDWR)  # ends the other direction too


_OPEN_S = 30.0
_MOST_BYTES = 1 << 20


def open_way(address: Address, path: str) -> ClientConnection:
    """A WebSocket to *path* of the gateway.

    Raises:
        GatewayRefused: It does not let this token in, or not to this.
        RunUnknown: There is no such run, as far as this token sees.
        GatewayUnreachable: It does not answer.
    """
    with _told(address):
        return connect(**_way(address, path))


async def open_way_in_loop(address: Address, path: str) -> LoopConnection:
    """The same for an event loop."""
    with _told(address):
        return await connect_in_loop(**_way(address, path))


def _way(address: Address, path: str) -> dict[str, Any]:
    known = trust(address.url, address.certificate)
    return {
        "uri": f"ws{address.url.removeprefix('http')}{path}",
        "additional_headers": {"Authorization": f"Bearer {address.token}"},
        "ssl": None if isinstance(known, bool) else known,
        "open_timeout": _OPEN_S,
        "compression": None,
        "proxy": None,  # a proxy meant for the internet must not see the token
        "max_size": _MOST_BYTES,
        "ping_timeout": messages.PONG_WITHIN_S,
    }


@contextmanager
def _told(address: Address) -> Iterator[None]:
    """Tell in our words why no connection was opened."""
    try:
        yield
    except InvalidStatus as error:
        answer = httpx.Response(
            error.response.status_code, content=bytes(error.response.body or b"")
        )
        raise refusal(answer, address.url) from error
    except (OSError, TimeoutError, WebSocketException) as error:
        refused = refused_certificate(address.url, address.certificate, error)
        why = str(error) or type(error).__name__
        raise refused or GatewayUnreachable(address.url, why) from error


_INPUT, _OUTPUT = 0, 1


def run_command(address: Address, run_id: str, arguments: tuple[str, ...]) -> int:
    """Run *arguments* in the container of a run until they end; their exit status.

    They get a terminal where input and output of this process are one. What they print goes
    out as it comes: the bytes of a terminal are meant for a terminal. Input is read once they
    run, so that who is refused and tries again has lost none of it.

    Raises:
        GatewayRefused: The gateway, or the run's node, does not start it.
        GatewayUnreachable: The gateway does not answer, or the connection was lost.
    """
    terminal = os.isatty(_INPUT) and os.isatty(_OUTPUT)
    command = messages.ExecCommand(arguments=arguments, window=window_now() if terminal else None)
    opened = open_way(address, f"/v1/runs/{run_id}/exec")
    with opened:
        try:
            opened.send(messages.written(command))
            if isinstance(answer := messages.read(opened.recv()), messages.ExecRefusal):
                raise GatewayRefused(409, answer.why)
            with _raw() if terminal else _as_it_is() as resized:
                threading.Thread(target=_there, args=(opened, resized), daemon=True).start()
                return _printed(opened, answer)
        except ConnectionClosed as error:
            lost = "the connection to the command was lost, and the command is killed"
            raise GatewayUnreachable(address.url, lost) from error


def window_now() -> messages.WindowSize:
    """How large this terminal is; one that says nothing about it counts as the usual one."""
    size = os.get_terminal_size(_OUTPUT)
    return messages.WindowSize(rows=size.lines or 24, columns=size.columns or 80)


def _printed(opened: ClientConnection, message: messages.ExecMessage) -> int:
    """Print what the command prints, first what *message* has of it; its exit status."""
    while True:
        if isinstance(message, messages.StreamData):
            data = memoryview(message.data)
            while data:
                data = data[os.write(message.stream, data) :]
        elif isinstance(message, messages.ExecEnd):
            return message.exit_code
        elif isinstance(message, messages.ExecRefusal):
            raise GatewayRefused(409, message.why)
        message = messages.read(opened.recv())


def _there(opened: ClientConnection, resized: int) -> None:
    """Pass on this process's input, and the new size of its window whenever it changes."""
    watched = [_INPUT, resized]
    with suppress(ConnectionClosed, OSError), os.fdopen(resized, "rb", buffering=0) as sizes:
        while True:
            ready, _, _ = select.select(watched, [], [])
            if resized in ready:
                if not sizes.read(_PIECE_BYTES):
                    return
                opened.send(messages.written(window_now()))
            if _INPUT in ready:
                data = _read_input()
                opened.send(
                    messages.written(messages.StreamData(messages.StandardStream.INPUT, data))
                )
                if not data:
                    watched.remove(_INPUT)


def _read_input() -> bytes:
    try:
        return os.read(_INPUT, _PIECE_BYTES)
    except OSError:  # its terminal has gone: that is the end of it
        return b""


@contextmanager
def _as_it_is() -> Iterator[int]:
    """The descriptor by which a new size of the window would be told; there is no window."""
    told, tell = os.pipe()
    try:
        yield told
    finally:
        os.close(tell)


@contextmanager
def _raw() -> Iterator[int]:
    """The same, while this terminal passes each key on, Ctrl-C too."""
    import termios  # noqa: PLC0415 - not on every system
    import tty  # noqa: PLC0415

    told, tell = os.pipe()
    before = termios.tcgetattr(_INPUT)
    # A handler may only do little: the thread that sends is woken by a byte.
    handler = signal.signal(signal.SIGWINCH, lambda *_: os.write(tell, b"w"))
    try:
        tty.setraw(_INPUT, termios.TCSADRAIN)  # what was typed before is not thrown away
        yield told
    finally:
        termios.tcsetattr(_INPUT, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
        os.close(tell)
