"""Refuses connections between a site's machines that others could read or change."""

import socket
from urllib.parse import urlsplit

from headway.errors import InvalidInput
from headway.policy.exposure import is_exposed
from headway.settings import Settings

_INSTEAD = (
    "auth strings, passwords and jobs would cross the network unprotected: give an address that "
    "speaks TLS ({tls}), or name networks that only the site's own machines are on (a VPN, a "
    "cable of their own) in HEADWAY_TRUSTED_NETWORKS, such as 10.8.0.0/24"
)

_TLS = {"postgresql": "?sslmode=verify-full", "redis": "rediss"}
"""What asks for TLS in an address, by its scheme."""


def check_connections(settings: Settings) -> None:
    """Check where this machine listens, and whom it asks.

    Raises:
        InvalidInput: Others could read or change what crosses the network there.
    """
    check_connection(settings, "HEADWAY_HOST", f"http://{_bracketed(settings.host)}")
    check_connection(settings, "HEADWAY_SERVER_URL", settings.api_url)
    check_connection(settings, "HEADWAY_LEDGER_URL", settings.known_ledger or "")
    check_connection(settings, "HEADWAY_SERVER_DATABASE_URL", settings.server_database or "")
    check_connection(settings, "HEADWAY_REDIS_URL", settings.redis or "")


def check_connection(settings: Settings, field: str, url: str) -> None:
    """The same for one address, which was given as *field*.

    Raises:
        InvalidInput: As above.
    """
    host = urlsplit(url).hostname
    if host and is_exposed(url, _addresses(host), settings.trusted_networks):
        tls = _TLS.get(urlsplit(url).scheme.partition("+")[0], "https")
        raise InvalidInput(field, host, _INSTEAD.format(tls=tls))


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []  # who connects to it says that there is no such machine
    return sorted({str(address[0]) for *_, address in found})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
