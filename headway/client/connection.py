"""Asks a gateway over HTTP, and turns what it refuses into errors."""

import weakref
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from headway import errors
from headway.clock import Clock
from headway.credentials import Address
from headway.errors import HeadwayError, InvalidInput, shown
from headway.model.strict_json import write_strict
from headway.pinning import refused_certificate, trust
from headway.units import MIB, format_size
from headway.waits import waiting_for

Json = dict[str, Any]
_TIMEOUT_S = 120.0
"""The gateway itself waits for a busy Prefect server for up to a minute and a half."""
_TRIES = 20
"""Of a request that comes too early after others: it was not let in, and nothing was done."""
_LONGEST_PAUSE_S = 10.0
_MOST_BYTES = 256 * MIB
"""The list of a hundred thousand outputs with long names has less."""
_OF_THE_WAY = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
_JSON = {"Content-Type": "application/json"}
_NO_GATEWAY = "the program that answers there is no gateway of headway's"


class Connection:
    """The way to one gateway. Several threads may ask at once."""

    def __init__(
        self, address: Address, clock: Clock, transport: httpx.BaseTransport | None
    ) -> None:
        """To the gateway at *address*; *transport* takes the place of the network."""
        self.url = address.url
        self._certificate = address.certificate
        self._clock = clock
        self._client = httpx.Client(
            base_url=f"{address.url}/v1",
            headers={"Authorization": f"Bearer {address.token}"},
            timeout=_TIMEOUT_S,
            verify=trust(address.url, address.certificate),
            transport=transport,
            trust_env=False,  # a proxy meant for the internet must not see the token
        )
        # Runs, and what is read bit by bit, may hold this longer than whoever made the client.
        weakref.finalize(self, self._client.close)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def document(
        self,
        method: str,
        path: str,
        body: object = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Json:
        """What the gateway answers, which is an object."""
        found = self._ask(method, path, body, parameters)
        if not isinstance(found, dict):
            raise errors.GatewayUnreachable(self.url, _NO_GATEWAY)
        return found

    def documents(self, path: str, parameters: Mapping[str, Any] | None = None) -> list[Json]:
        """What the gateway answers, which is a list of objects."""
        found = self._ask("GET", path, parameters=parameters)
        if not isinstance(found, list):
            raise errors.GatewayUnreachable(self.url, _NO_GATEWAY)
        return found

    def send(self, path: str, content: bytes, parameters: Mapping[str, Any]) -> Json:
        """What the gateway answers, which is an object, to bytes that are no document."""
        headers = {"Content-Type": "application/octet-stream"}
        request = self._client.build_request(
            "POST", path, content=content, params=parameters, headers=headers
        )
        found = _document(self._let_in(request), self.url)
        if not isinstance(found, dict):
            raise errors.GatewayUnreachable(self.url, _NO_GATEWAY)
        return found

    def answer(
        self,
        method: str,
        path: str,
        *,
        stream: bool = False,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> httpx.Response:
        """An answer that is no document; with *stream* it is to be read, and closed, bit by bit."""
        request = self._client.build_request(
            method, path, params=parameters, headers=headers, timeout=timeout_s
        )
        return self._let_in(request, stream=stream)

    def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Any:
        """The document that the gateway answers with."""
        content = None if body is None else write_strict(body)
        request = self._client.build_request(
            method, path, content=content, params=parameters, headers=_JSON
        )
        with waiting_for(f"the gateway at {shown(self.url)[1:-1]}"):
            return _document(self._let_in(request), self.url)

    def _let_in(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """The answer to *request*, sent again where it came too early; it is no refusal."""
        for _ in range(_TRIES):
            answer = self._sent(request, stream=stream)
            if answer.status_code != HTTPStatus.TOO_MANY_REQUESTS:
                break
            answer.close()
            self._clock.sleep(_pause_s(answer))
        if not answer.is_success:
            raise refusal(answer, self.url)
        return answer

    def _sent(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        try:
            answer = self._client.send(request, stream=True)
            return answer if stream and answer.is_success else _whole(answer, self.url)
        except httpx.RequestError as error:
            refused = refused_certificate(self.url, self._certificate, error)
            raise refused or broken_off(self.url, error) from error


def _whole(answer: httpx.Response, url: str) -> httpx.Response:
    """*answer* with all of its body; one that would fill this machine's memory is no gateway's."""
    pieces, size = [], 0
    try:
        for piece in answer.iter_bytes():
            size += len(piece)
            if size > _MOST_BYTES:
                raise errors.GatewayUnreachable(
                    url, f"it answers more than {format_size(_MOST_BYTES)}"
                )
            pieces.append(piece)
    finally:
        answer.close()
    plain = [each for each in answer.headers.raw if each[0].lower() not in _OF_THE_WAY]
    return httpx.Response(answer.status_code, headers=plain, content=b"".join(pieces))


def broken_off(url: str, error: httpx.RequestError) -> errors.GatewayUnreachable:
    """What an *error* on the way to the gateway at *url* is told as."""
    return errors.GatewayUnreachable(url, shown(str(error) or type(error).__name__, 200)[1:-1])


def refusal(answer: httpx.Response, url: str) -> HeadwayError:
    """The error that *answer*, of the gateway at *url*, stands for."""
    match _document(answer, url):
        case {"field": str(field), "value": value, "allowed": str(allowed)}:
            return InvalidInput(field, value, allowed)
        case {"run": str(run)}:
            return errors.RunUnknown(run)
        case {"untold": str(run)}:
            return errors.EndUntold(run)
        case {"detail": str(detail)}:
            return errors.GatewayRefused(answer.status_code, detail)
        case _:
            return errors.GatewayUnreachable(url, f"HTTP {answer.status_code}")


def path_part(name: str) -> str:
    """*name* as one part of a path, whatever characters it has.

    Raises:
        errors.RunUnknown: It is none.
        InvalidInput: A path with it would be another one.
    """
    if "/" in name:
        raise InvalidInput("run", name, "give its id: a name with a slash cannot be asked for")
    if name in {"", ".", ".."}:
        raise errors.RunUnknown(name)  # each id begins with the first: a variable that was not set
    return quote(name, safe="", errors="surrogateescape")


def _document(answer: httpx.Response, url: str) -> Any:
    """The document in *answer*: a proxy, or another program, may have written no JSON at all."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        cause = f"HTTP {answer.status_code}; {_NO_GATEWAY}"
        raise errors.GatewayUnreachable(url, cause) from None


def _pause_s(answer: httpx.Response) -> float:
    told = answer.headers.get("Retry-After", "")
    return min(float(told), _LONGEST_PAUSE_S) if told.isascii() and told.isdigit() else 1.0
