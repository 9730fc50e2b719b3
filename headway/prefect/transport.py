"""How the Prefect server is spoken to: who asks, and what is asked again."""

import base64
from collections.abc import Generator
from contextlib import suppress
from uuid import uuid4

import httpx

from headway.clock import Clock
from headway.errors import InvalidInput, shown
from headway.waits import waiting_for

REFUSED = frozenset({401, 403})
_BUSY = frozenset({429, 502, 503, 504})
ONCE = "headway_once"
"""Extension of a request that is not asked again: somebody waits who can ask anew."""
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)


class RetryTransport(httpx.HTTPTransport):
    """Asks again while the server is busy, or answers nothing in time.

    Every call of `PrefectServer` may be repeated: reading changes nothing, a state is set
    to the same value, and a run is created under an idempotency key.
    """

    def __init__(self, clock: Clock) -> None:
        """Wait between the attempts by *clock*."""
        # trust_env: a proxy meant for the internet must not see calls to loopback.
        super().__init__(trust_env=False)
        self._clock = clock

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer to *request*, the last one where the server stays busy."""
        if ONCE in request.extensions:
            return self._sent(request)
        host = request.url.netloc.decode("ascii", "replace")
        with waiting_for(f"the Prefect server at {host}, which is busy or does not answer"):
            return self._asked(request)

    def _asked(self, request: httpx.Request) -> httpx.Response:
        for pause_s in _PAUSES_S:
            with suppress(httpx.ReadTimeout):
                response = self._sent(request)
                response.read()
                if response.status_code not in _BUSY:
                    return response
            self._clock.sleep(pause_s)
        return self._sent(request)

    def _sent(self, request: httpx.Request) -> httpx.Response:
        """The answer to *request*, on another connection where the server closes this one.

        It does once it has answered that it failed, and we may have asked on it already.
        """
        try:
            return super().handle_request(request)
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return super().handle_request(request)


class SiteAuth(httpx.Auth):
    """Tells the auth string and, to a server that wants one, a token against cross-site requests.

    A site's own server wants none (`headway.admin.environment`). A token is good for an hour, so
    with one that is refused, as with none, a new one is tried.
    """

    requires_response_body = True

    def __init__(self, auth: str | None, api_url: str) -> None:
        """Tell *auth*, where there is one, to the server at *api_url*."""
        encoded = base64.b64encode((auth or "").encode()).decode()
        self._headers = {"Authorization": f"Basic {encoded}"} if auth else {}
        self._token_url = f"{api_url}/csrf-token"
        self._token: dict[str, str] = {}

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Yield what is to be sent; the last answer is that to *request* or a refusal."""
        request.headers.update(self._headers)
        if request.method == "GET":
            yield request
            return
        for anew in (False, True):
            if anew:
                client = uuid4().hex
                answer = yield httpx.Request(
                    "GET",
                    self._token_url,
                    params={"client": client},
                    headers=self._headers,
                    extensions=request.extensions,
                )
                if answer.status_code in REFUSED | _BUSY:
                    return
                self._token = {}
                if answer.is_success:
                    token = answer.json()["token"]
                    self._token = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": client}
            request.headers.update(self._token)
            response = yield request
            if response.status_code != httpx.codes.FORBIDDEN:
                return


def checked_address(field: str, url: str) -> str:
    """*url*, the address of a Prefect API, without a slash at its end.

    Raises:
        InvalidInput: It is no address at all; *field* is where it was given.
    """
    try:
        address, why = httpx.URL(url), ""
    except httpx.InvalidURL as error:
        address, why = httpx.URL(), f" ({shown(str(error), 200)[1:-1]})"
    if address.scheme not in {"http", "https"} or not address.host:
        allowed = f"give an address such as http://head:4200/api{why}"
        raise InvalidInput(field, url, allowed)
    return url.rstrip("/")
