"""A command beside the program of a run, with this terminal's or this process's streams."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from headway.client.way import open_way
from headway.credentials import Address
from headway.errors import GatewayRefused, GatewayUnreachable
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

_INPUT, _OUTPUT = 0, 1
_PIECE_BYTES = 1 << 16


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
    command = ExecCommand(arguments=arguments, window=window_now() if terminal else None)
    opened = open_way(address, f"/v1/runs/{run_id}/exec")
    with opened:
        try:
            opened.send(written(command))
            if isinstance(answer := read(opened.recv()), ExecRefusal):
                raise GatewayRefused(409, answer.why)
            with _raw() if terminal else _as_it_is() as resized:
                threading.Thread(target=_there, args=(opened, resized), daemon=True).start()
                return _back(opened)
        except ConnectionClosed as error:
            lost = "the connection to the command was lost, and the command is killed"
            raise GatewayUnreachable(address.url, lost) from error


def window_now() -> WindowSize:
    """How large this terminal is; one that says nothing about it counts as the usual one."""
    size = os.get_terminal_size(_OUTPUT)
    return WindowSize(rows=size.lines or 24, columns=size.columns or 80)


def _back(opened: ClientConnection) -> int:
    """Print what the command prints; its exit status."""
    while True:
        message = read(opened.recv())
        if isinstance(message, StreamData):
            data = memoryview(message.data)
            while data:
                data = data[os.write(message.stream, data) :]
        elif isinstance(message, ExecEnd):
            return message.exit_code
        elif isinstance(message, ExecRefusal):
            raise GatewayRefused(409, message.why)


def _there(opened: ClientConnection, resized: int) -> None:
    """Pass on this process's input, and the new size of its window whenever it changes."""
    watched = [_INPUT, resized]
    with suppress(ConnectionClosed, OSError), os.fdopen(resized, "rb", buffering=0) as sizes:
        while True:
            ready, _, _ = select.select(watched, [], [])
            if resized in ready:
                if not sizes.read(_PIECE_BYTES):
                    return
                opened.send(written(window_now()))
            if _INPUT in ready:
                data = _read_input()
                opened.send(written(StreamData(StandardStream.INPUT, data)))
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
