"""Lines of JSON over a Unix socket, each with at most one open file."""

import json
import socket
from collections.abc import Callable
from typing import Any

_MOST_BYTES = 1 << 30
"""A line longer than this is no answer: a set of ten million files has less."""

_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Channel:
    """One end. Nothing that comes in is trusted to be more than JSON."""

    def __init__(self, end: socket.socket) -> None:
        """Speak over *end*."""
        self._end = end
        self._buffer = bytearray()
        self.files: list[int] = []
        """Descriptors that came in and were not taken yet; whoever takes one closes it."""

    def send(self, message: dict[str, Any], file: int | None = None) -> None:
        """Send *message*, and *file* with it."""
        line = json.dumps(message).encode() + b"\n"
        if file is not None:
            sent = socket.send_fds(self._end, [line], [file])
            line = line[sent:]
        self._end.sendall(line)

    def receive(self, patience: Callable[[], float] | None = None) -> dict[str, Any] | None:
        """The next message; None when the other end is gone.

        *patience* is asked again and again how many seconds to wait at most,
        and may raise to give up.
        """
        seen = 0
        while (end := self._buffer.find(b"\n", seen)) < 0:
            seen = len(self._buffer)
            self._end.settimeout(patience() if patience else None)
            try:
                data, files, _, _ = socket.recv_fds(self._end, 1 << 16, 1, _CLOSE_ON_EXEC)
            except TimeoutError:
                continue
            except ConnectionResetError:
                return None
            self.files += files
            if not data or seen > _MOST_BYTES:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        message = json.loads(line)
        return message if isinstance(message, dict) else None
