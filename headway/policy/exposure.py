"""Whether what the machines of a site tell each other could be read or changed on the way."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from urllib.parse import parse_qs, urlsplit

Network = IPv4Network | IPv6Network
_CHECKED = frozenset({"verify-ca", "verify-full"})
"""PostgreSQL's sslmodes in which the client knows whom it speaks to; the others can be fooled."""


def speaks_tls(url: str) -> bool:
    """Whether nobody on the way can read or change what goes to *url*.

    Args:
        url: Of an API, a database or a Redis.
    """
    parts = urlsplit(url)
    if parts.scheme.startswith("postgresql"):
        return (
            set(parse_qs(parts.query).get("sslmode", ())) <= _CHECKED and "sslmode" in parts.query
        )
    return parts.scheme in {"https", "rediss"}


def is_exposed(url: str, addresses: Sequence[str], trusted: Sequence[Network]) -> bool:
    """Whether the way to *url* leads over a network that nobody vouches for, without TLS.

    Args:
        url: Of an API or a database.
        addresses: Those that its host's name stands for; none where it is a file or a socket.
        trusted: Networks that carry nothing but the site's own machines.
    """
    if speaks_tls(url):
        return False
    return not all(_is_trusted(address, trusted) for address in addresses)


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    found = ip_address(address.partition("%")[0])
    if found.is_unspecified:  # every address of the machine
        return any(network.prefixlen == 0 for network in trusted)
    return found.is_loopback or any(found in network for network in trusted)
