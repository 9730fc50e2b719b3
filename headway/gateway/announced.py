"""Where the site's gateway is, told to this machine's commands and to nodes that join."""

from dataclasses import asdict
from pathlib import Path

from headway.credentials import GatewayPlace, note_gateway
from headway.gateway.certificate import Certificate
from headway.ledger import Ledger
from headway.pinning import EVERYWHERE, LOOPBACK, reached_by_itself
from headway.site import GATEWAY, Site
from headway.this_node import os_user


def announce(
    site: Site, *, host: str, port: int, name: str, own: Certificate | None, given: Path | None
) -> None:
    """Note that the gateway of *site* is bound to *host*.

    Args:
        site: The site.
        host: The address that it is bound to.
        port: The port there.
        name: The first by which users ask it.
        own: The site's own certificate, by which it is recognised.
        given: Another one in its place, which machines are expected to trust anyway.
    """
    pem = own.path.read_text() if own is not None else None
    scheme = "https" if own is not None or given is not None else "http"
    here = name if given is not None else reached_by_itself(host)
    note_gateway(site.settings, GatewayPlace(f"{scheme}://{here}:{port}", pem))
    elsewhere = name
    if own is not None:
        address = site.settings.address
        elsewhere = host if host != EVERYWHERE else address if address in own.names else name
    reachable = GatewayPlace(f"{scheme}://{elsewhere}:{port}", pem)
    told = {} if host in LOOPBACK else asdict(reachable)
    site.ledger.settings.put(GATEWAY, told, actor=os_user())


def announced(ledger: Ledger) -> GatewayPlace | None:
    """Where other machines reach the site's gateway; None while it stays on its own machine."""
    told = ledger.settings.get(GATEWAY)
    return GatewayPlace(**told) if told else None
