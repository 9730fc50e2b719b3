"""The one client of the gateway: what the command line and people's programs speak.

    with Client(find_address(read_settings())) as client:
        run = client.submit({"name": "digits", "image": "…", "command": ["…"]})
        print(client.run(run["run_id"])["state"])

What a call returns is described in docs/json.md.
"""

import re
import ssl
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote

import httpx

from headway.clock import Clock, SystemClock
from headway.credentials import Address
from headway.errors import (
    CertificateRefused,
    GatewayRefused,
    GatewayUnreachable,
    HeadwayError,
    InvalidInput,
    RunUnknown,
    shown,
)
from headway.model.strict_json import write_strict
from headway.pinning import refused_certificate
from headway.waits import waiting_for

Json = dict[str, Any]
_TIMEOUT_S = 120.0
"""The gateway itself waits for a busy Prefect server for up to a minute and a half."""
_TRIES = 20
"""Of a request that comes too early after others: it was not let in, and nothing was done."""
_LONGEST_PAUSE_S = 10.0


class Client:
    """One gateway, asked by one user.

    Every method raises `GatewayUnreachable` where it does not answer, `InvalidInput` and
    `RunUnknown` where what was asked for is wrong, and `GatewayRefused` for every other refusal.
    """

    def __init__(
        self,
        address: Address,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """The gateway at *address*; *transport* takes the place of the network."""
        self.url = address.url
        self._clock = clock or SystemClock()
        self._client = httpx.Client(
            base_url=f"{address.url}/v1",
            headers={"Authorization": f"Bearer {address.token}"},
            timeout=_TIMEOUT_S,
            verify=_trusted(address),
            transport=transport,
            trust_env=False,  # a proxy meant for the internet must not see the token
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_token(self) -> None:
        """Raise `GatewayRefused` unless the token lets its user in, whatever it may be used for."""
        try:
            self.nodes()
        except GatewayRefused as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def outputs(self, run: str) -> Json:
        """The files that a run wrote below its outputs, and whether that is all of them."""
        return self._object("GET", f"/runs/{_part(run)}/outputs")

    @contextmanager
    def output(
        self, run_id: str, href: str, *, start: int = 0, version: str = ""
    ) -> Iterator["Output"]:
        """One of them, to be read within the block.

        Args:
            run_id: The run.
            href: Of the output, as `outputs` says.
            start: Its first byte that is wanted, if it still has this *version*; another one
                comes from its beginning.
            version: As an earlier answer said.
        """
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": f'"{version}"'}
        path = f"/runs/{_part(run_id)}/outputs/{href}"
        request = self._client.build_request("GET", path, headers=headers)
        answer = self._answer(request, stream=True)
        try:
            yield Output(self.url, answer)
        finally:
            answer.close()

    def output_digest(self, run_id: str, href: str) -> tuple[str, str | None]:
        """Version and SHA-256 of an output, which is read as a whole for that.

        There is no digest of one that is written to at this moment.
        """
        path = f"/runs/{_part(run_id)}/outputs/{href}"
        request = self._client.build_request(
            "HEAD", path, headers={"Want-Repr-Digest": "sha-256=10"}, timeout=_DIGEST_S
        )
        found = Output(self.url, self._answer(request))
        return found.version, found.sha256

    def submit(
        self,
        job: Mapping[str, Any],
        *,
        key: str | None = None,
        pool: str | None = None,
        queue: str | None = None,
    ) -> Json:
        """Hand in *job*, which has the fields of a job file.

        Args:
            job: Its owner and team are those of the token.
            key: Submitting twice with one key gives one run.
            pool: Work pool, where the site has several.
            queue: Work queue, or a node to run on.
        """
        body = {"job": dict(job), "key": key, "pool": pool, "queue": queue}
        return self._object("POST", "/runs", body)

    def run(self, run: str) -> Json:
        """All that is known of a run: by its id, the beginning of it, or its name."""
        return self._object("GET", f"/runs/{_part(run)}")

    def why(self, run: str) -> Json:
        """Why a run waits: what is scarce, who has it, who is ahead, and what would help."""
        return self._object("GET", f"/runs/{_part(run)}/why")

    def cancel(self, run: str) -> Json:
        """End a run; its container gets its grace time."""
        return self._object("POST", f"/runs/{_part(run)}/cancel", {})

    def retry(self, run: str) -> Json:
        """Try a run that has ended once more, from its checkpoint."""
        return self._object("POST", f"/runs/{_part(run)}/retry", {})

    def nodes(self) -> list[Json]:
        """What each node has, what is promised of it, and what is in use."""
        return self._list("GET", "/nodes")

    def queue(self) -> list[Json]:
        """Who waits, for what, in which order."""
        return self._list("GET", "/queue")

    def _object(self, method: str, path: str, body: object = None) -> Json:
        found = self._ask(method, path, body)
        if not isinstance(found, dict):
            raise GatewayUnreachable(self.url, "what answers there is no gateway")
        return found

    def _list(self, method: str, path: str, **parameters: Any) -> list[Json]:
        found = self._ask(method, path, parameters=parameters)
        if not isinstance(found, list):
            raise GatewayUnreachable(self.url, "what answers there is no gateway")
        return found

    def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Any:
        """What the gateway answers, asked again where it was too early."""
        content = None if body is None else write_strict(body)
        request = self._client.build_request(
            method, path, content=content, params=parameters, headers=_JSON
        )
        with waiting_for(f"the gateway at {shown(self.url)[1:-1]}"):
            return _read(self._answer(request), self.url)

    def _answer(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """The answer to *request*, which is no refusal."""
        for _ in range(_TRIES):
            answer = self._sent(request, stream=stream)
            if answer.status_code != HTTPStatus.TOO_MANY_REQUESTS:
                break
            answer.close()
            self._clock.sleep(_pause_s(answer))
        if not answer.is_success:
            answer.read()
            raise refusal(answer, self.url)
        return answer

    def _sent(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        try:
            return self._client.send(request, stream=stream)
        except httpx.TransportError as error:
            if why := refused_certificate(error):
                raise CertificateRefused(self.url, why) from error
            cause = str(error) or type(error).__name__
            raise GatewayUnreachable(self.url, shown(cause, 200)[1:-1]) from error


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
            cause = str(error) or type(error).__name__
            raise GatewayUnreachable(self._url, shown(cause, 200)[1:-1]) from error


_PARTIAL = re.compile(r"bytes ([0-9]{1,18})-")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_DIGEST_S = 3600.0
_JSON = {"Content-Type": "application/json"}


def refusal(answer: httpx.Response, url: str) -> HeadwayError:
    """The error that *answer*, of the gateway at *url*, stands for."""
    said = _read(answer, url)
    match said:
        case {"field": str(field), "value": value, "allowed": str(allowed)}:
            return InvalidInput(field, value, allowed)
        case {"run": str(run)}:
            return RunUnknown(run)
        case {"detail": str(detail)}:
            return GatewayRefused(answer.status_code, detail)
        case _:
            return GatewayUnreachable(url, f"HTTP {answer.status_code}")


def _read(answer: httpx.Response, url: str) -> Any:
    """The document in *answer*: a proxy, or another program, may have written no JSON at all."""
    try:
        return answer.json()
    except ValueError:
        cause = f"HTTP {answer.status_code}, and what answers there is no gateway"
        raise GatewayUnreachable(url, cause) from None


def _pause_s(answer: httpx.Response) -> float:
    told = answer.headers.get("Retry-After", "")
    return min(float(told), _LONGEST_PAUSE_S) if told.isdigit() else 1.0


def _trusted(address: Address) -> ssl.SSLContext | bool:
    if address.certificate is None or not address.url.startswith("https:"):
        return True
    return ssl.create_default_context(cadata=address.certificate)


def _part(name: str) -> str:
    """*name* as one part of a path, whatever characters it has.

    Raises:
        RunUnknown: It is none.
        InvalidInput: A path with it would be another one.
    """
    if "/" in name:
        raise InvalidInput("run", name, "give its id: a name with a slash cannot be asked for")
    if name in {"", ".", ".."}:
        raise RunUnknown(name)  # each id begins with the first: a variable that was not set
    return quote(name, safe="", errors="surrogateescape")
