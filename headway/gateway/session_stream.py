"""A connection to a session's program, as the HTTP client takes one."""

import ssl
from collections.abc import Iterable
from typing import Any

import anyio
import httpcore

from headway.node.relay import ByteStream


class SessionStream(httpcore.AsyncNetworkStream):
    """A connection that is there already."""

    def __init__(self, carried: ByteStream) -> None:
        """Over *carried*."""
        self._carried = carried
        self._rest = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library's own
        """At most *max_bytes*; none at the end."""
        if not self._rest:
            try:
                with anyio.fail_after(timeout):
                    self._rest = await self._carried.receive()
            except TimeoutError as error:
                raise httpcore.ReadTimeout from error
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the library's own
        """Send all of *buffer*."""
        try:
            with anyio.fail_after(timeout):
                await self._carried.send(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore.WriteError from error

    async def aclose(self) -> None:
        """Close it."""
        await self._carried.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own
    ) -> httpcore.AsyncNetworkStream:
        """Never asked for: programs speak plain HTTP on their node."""
        raise NotImplementedError

    def get_extra_info(self, info: str) -> Any:  # noqa: ARG002 - the library's own
        """Nothing is known of it."""
        return None


def request_to(
    method: str,
    target: bytes,
    headers: Iterable[tuple[bytes, bytes]],
    content: Any,
    answer_s: float,
) -> httpcore.Request:
    """A request to the program for *target*, to the letter."""
    url = httpcore.URL(scheme=b"http", host=b"session", port=80, target=target)
    timeouts = {"read": answer_s, "write": answer_s}
    return httpcore.Request(
        method, url, headers=list(headers), content=content, extensions={"timeout": timeouts}
    )
