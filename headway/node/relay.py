"""Carries the bytes of a TCP connection over a WebSocket, both ways."""

from contextlib import suppress
from typing import Protocol

import anyio
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

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
