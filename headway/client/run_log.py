"""Reads a run's log from the gateway, on from where it was left off."""

from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import unquote

import httpx

from headway.client.connection import Connection, path_part
from headway.clock import Clock
from headway.errors import GatewayRefused, GatewayUnreachable
from headway.model.run_file import FROM, MISSING, NEXT_ATTEMPT

_MOST_ANSWERS = 200
_PAUSE_S = 1.0
_FOR_THE_MOMENT = HTTPStatus.SERVICE_UNAVAILABLE
"""Such as while the worker of the run's node is started anew."""
_GIVEN_UP_S = 60.0
"""So long a gateway may be away while somebody follows a log."""


class RunLog:
    """What the program of one run wrote, all attempts in order."""

    def __init__(self, connection: Connection, run_id: str) -> None:
        """The log from its beginning."""
        self._connection = connection
        self._path = f"/runs/{path_part(run_id)}/log"
        self._attempt = 1
        self._offset = 0
        self.over = False
        """The last answer said that nothing more is there and, if it followed, will come."""

    def new(self) -> Iterator[bytes]:
        """What has come since, up to the newest attempt."""
        for _ in range(_MOST_ANSWERS):  # a program that writes all the time does not keep us
            yield from self._answered(follow=False)
            if self.over:
                return

    def follow(self, clock: Clock) -> Iterator[bytes]:
        """All that comes until the run has ended.

        An answer that broke off is asked for again from the byte where it did.

        Raises:
            GatewayUnreachable: For a whole minute.
        """
        answered_s = clock.monotonic_s()
        while not self.over:
            try:
                for piece in self._answered(follow=True):
                    answered_s = clock.monotonic_s()
                    yield piece
            except (GatewayUnreachable, GatewayRefused) as error:
                if isinstance(error, GatewayRefused) and error.status != _FOR_THE_MOMENT:
                    raise
                if clock.monotonic_s() >= answered_s + _GIVEN_UP_S:
                    raise
                clock.sleep(_PAUSE_S)

    def _answered(self, *, follow: bool) -> Iterator[bytes]:
        """One answer's part of it."""
        self.over = False
        asked = {"attempt": self._attempt, "from": self._offset, "follow": follow}
        answer = self._connection.answer("GET", self._path, parameters=asked, stream=True)
        try:
            if answer.status_code == HTTPStatus.NO_CONTENT:
                later = answer.headers.get(NEXT_ATTEMPT)
                if why := answer.headers.get(MISSING):
                    yield f"headway: {unquote(why)}\n".encode()
                self.over = later is None
                if later is not None:
                    self._attempt, self._offset = int(later), 0
                return
            self._offset = int(answer.headers[FROM])
            for piece in answer.iter_bytes():
                self._offset += len(piece)
                yield piece
        except (httpx.RequestError, KeyError, ValueError) as error:
            raise GatewayUnreachable(self._connection.url, type(error).__name__) from error
        finally:
            answer.close()
