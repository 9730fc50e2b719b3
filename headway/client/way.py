"""A WebSocket to the gateway, by which bytes of a run come and go."""

import httpx
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from headway.client.connection import refusal
from headway.credentials import Address
from headway.errors import GatewayUnreachable
from headway.pinning import trust

_OPEN_S = 30.0
_MOST_BYTES = 1 << 20


def open_way(address: Address, path: str) -> ClientConnection:
    """A WebSocket to *path* of the gateway.

    Raises:
        GatewayRefused: It does not let this token in, or not to this.
        RunUnknown: There is no such run, as far as this token sees.
        GatewayUnreachable: It does not answer.
    """
    known = trust(address.url, address.certificate)
    try:
        return connect(
            f"ws{address.url.removeprefix('http')}{path}",
            additional_headers={"Authorization": f"Bearer {address.token}"},
            ssl=None if isinstance(known, bool) else known,
            open_timeout=_OPEN_S,
            compression=None,
            proxy=None,  # a proxy meant for the internet must not see the token
            max_size=_MOST_BYTES,
        )
    except InvalidStatus as error:
        answer = httpx.Response(
            error.response.status_code, content=bytes(error.response.body or b"")
        )
        raise refusal(answer, address.url) from error
    except (OSError, TimeoutError, WebSocketException) as error:
        raise GatewayUnreachable(address.url, str(error) or type(error).__name__) from error
