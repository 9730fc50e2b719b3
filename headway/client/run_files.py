"""Reads what a run has left in files from the gateway: its log, and its outputs."""

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

import httpx

from headway.client.connection import Connection, broken_off, path_part
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


_PARTIAL = re.compile(r"bytes ([0-9]{1,18})-")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_DIGEST_S = 3600.0
"""The node reads the whole file before it answers."""


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Where an output is.

    Attributes:
        run_id: The run.
        href: Of the output, as the list of the outputs says.
        attempt: On the node of this attempt; None for the last that began.
    """

    run_id: str
    href: str
    attempt: int | None = None

    @property
    def path(self) -> str:
        """Its path at the gateway."""
        return f"/runs/{path_part(self.run_id)}/outputs/{self.href}"

    @property
    def parameters(self) -> dict[str, int]:
        """What is asked with it."""
        return {} if self.attempt is None else {"attempt": self.attempt}


class Output:
    """One output of a run, as it is being sent."""

    def __init__(self, url: str, answer: httpx.Response) -> None:
        """As the gateway at *url* answers."""
        self._url = url
        self._answer = answer
        self.version = answer.headers.get("ETag", "").strip('"')
        """Differs when the file may differ."""
        partial = _PARTIAL.match(answer.headers.get("Content-Range", ""))
        self.start = int(partial[1]) if partial else 0
        """Offset of the first byte that comes."""
        digest = _DIGEST.fullmatch(answer.headers.get("Repr-Digest", ""))
        self.sha256 = b64decode(digest[1]).hex() if digest else None
        """Of the whole file, where it was sent along."""

    def pieces(self) -> Iterator[bytes]:
        """Its bytes in order.

        Raises:
            GatewayUnreachable: It broke off.
        """
        try:
            yield from self._answer.iter_raw()
        except httpx.TransportError as error:
            raise broken_off(self._url, error) from error


@contextmanager
def opened_output(
    connection: Connection, place: OutputPlace, *, start: int, version: str
) -> Iterator[Output]:
    """One output, to be read within the block from *start* if it still has this *version*.

    Without a *version* from *start* of whatever it is now.
    """
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-"}
        headers |= {"If-Range": f'"{version}"'} if version else {}
    answer = connection.answer(
        "GET", place.path, parameters=place.parameters, headers=headers, stream=True
    )
    try:
        yield Output(connection.url, answer)
    finally:
        answer.close()


def output_digest(connection: Connection, place: OutputPlace) -> tuple[str, str | None]:
    """Version and SHA-256 of an output, which the node reads as a whole for that."""
    answer = connection.answer(
        "HEAD",
        place.path,
        parameters=place.parameters,
        headers={"Want-Repr-Digest": "sha-256=10"},
        timeout_s=_DIGEST_S,
    )
    found = Output(connection.url, answer)
    return found.version, found.sha256
