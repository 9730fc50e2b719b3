"""Carries connections to a port of this machine to a port of a run, through the gateway."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from headway.client.way import open_way
from headway.credentials import Address
from headway.errors import GatewayRefused, HeadwayError, InvalidInput
from headway.pinning import LOOPBACK

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


class Forward:
    """A port of this machine's loopback that leads to a port of a run, until it is closed."""

    def __init__(
        self,
        address: Address,
        run_id: str,
        port: int,
        *,
        local_port: int,
        said: Callable[[str], None],
    ) -> None:
        """Listen; *said* is told why a connection could not be carried.

        Args:
            address: The gateway, and who asks.
            run_id: The run.
            port: One of its ports.
            local_port: Of this machine; any free one if 0.
            said: Is given lines for people.

        Raises:
            InvalidInput: Another program has *local_port*, or it is not for everybody.
        """
        self._address = address
        self._run_id = run_id
        self._port = port
        self._said = said
        try:
            self._listening = socket.create_server((LOOPBACK[0], local_port))
        except OSError as error:
            allowed = f"it cannot be listened on here ({error.strerror}): give another one"
            raise InvalidInput("--local-port", local_port, allowed) from None
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
