"""Reads the files that a run wrote below its outputs from the gateway."""

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from headway.client.connection import Connection, broken_off, path_part

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
