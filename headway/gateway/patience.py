"""How long the gateway waits until a request is whole: who says a byte now and then is left."""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

_UNDER_WAY = frozenset({"IDLE", "SEND_BODY"})
"""States of a client, by their names in h11, that has more to say of its request."""


class PatientProtocol(H11Protocol):
    """uvicorn's own, which by itself waits for ever for the end of a request that has begun."""

    request_limit_s: ClassVar[float] = 30.0
    """From the connection, or the first byte of a later request, to the last byte of its body."""
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._set_limit()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest, if there is some; the time that is left grows by nothing."""
        super().data_received(data)
        if str(self.conn.their_state) not in _UNDER_WAY:
            self._lift_limit()
        elif self._limit is None:
            self._set_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._lift_limit()
        super().connection_lost(exc)

    def _set_limit(self) -> None:
        self._limit = self.loop.call_later(self.request_limit_s, self.transport.abort)

    def _lift_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
