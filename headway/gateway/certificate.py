"""The site's own certificate for TLS at the gateway, made on first use.

It is signed by its own key. Who logs in pins it, so it lasts long, and is renewed by a command.
"""

import ipaddress
import re
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from headway import pinning
from headway.credentials import GatewayPlace, note_gateway
from headway.errors import InvalidInput
from headway.ledger import Ledger
from headway.node.certificate import CertificateFiles, keep_self_signed
from headway.pinning import EVERYWHERE, LOOPBACK, reached_by_itself
from headway.settings import Settings
from headway.site import GATEWAY, Site
from headway.this_node import os_user

_NAME = re.compile(r"[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*")
_MOST_CHARACTERS = 253
_BRIDGES = ("docker", "br-", "headway")
"""Of container engines: nobody asks by their addresses."""
RENEW = (
    "run `headway certificate --renew`, then `headway up`; after that everybody logs in again, and "
    "other nodes join again"
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and the key that belongs to it."""

    path: Path
    """In PEM."""
    key: Path
    names: frozenset[str]
    """Names and addresses that it is for."""
    expires_at: datetime
    fingerprint: str


def site_certificate(settings: Settings) -> Certificate | None:
    """The certificate of the site; None where none was made.

    Raises:
        InvalidInput: The file holds something else.
    """
    path, key = settings.home / "gateway.pem", settings.home / "gateway.key"
    if not path.exists() or not key.exists():
        return None
    try:
        pem = path.read_text()
        read = x509.load_pem_x509_certificate(pem.encode())
        names = frozenset(pinning.names_of(pem))
    except ValueError as error:
        allowed = "it is no certificate with names; `headway certificate --renew` makes another"
        raise InvalidInput("certificate", str(error), allowed, where=str(path)) from None
    return Certificate(path, key, names, read.not_valid_after_utc, pinning.fingerprint(pem))


def have_certificate(settings: Settings, names: Collection[str], now: datetime) -> Certificate:
    """The site's certificate for *names*, made where there is none.

    Raises:
        InvalidInput: There is one for other names, or it has expired. Another one would shut out
            whoever has pinned it, so an operator has to ask for it.
    """
    known = site_certificate(settings)
    if known is None:
        return make_certificate(settings, sorted(names), now)
    if known.expires_at <= now:
        ended = f"{known.expires_at:%Y-%m-%d}"
        raise InvalidInput("certificate", ended, f"the gateway's has expired: {RENEW}")
    missing = sorted(_plain(name) for name in names if _plain(name) not in known.names)
    if missing:
        allowed = f"the site's certificate is for {', '.join(sorted(known.names))}: {RENEW}"
        raise InvalidInput("name", ", ".join(missing), allowed)
    return known


def make_certificate(settings: Settings, names: Sequence[str], now: datetime) -> Certificate:
    """Make a certificate for *names*, in the place of the one before.

    Raises:
        InvalidInput: There is no name, or one of them is none.
    """
    if not names:
        allowed = "give --name with each name or address by which the gateway is asked"
        raise InvalidInput("name", "nothing", allowed)
    # By these the other machines of the site come in, and the commands of this one.
    own = [*settings.gateway_names, settings.address, reached_by_itself(settings.gateway_host)]
    known = dict.fromkeys([*names, *filter(None, own)])
    general = [_general(each) for each in known]
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = CertificateFiles(settings.home / "gateway.pem", settings.home / "gateway.key")
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectAlternativeName(general), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False),
    ]
    keep_self_signed(files, key, names[0][:64], now, extensions)
    found = site_certificate(settings)
    if found is None:
        raise RuntimeError("the certificate that was just written is not there")
    return found


def fitting(settings: Settings, now: datetime) -> Certificate | None:
    """The certificate that the gateway shows; None where it is not one of the site's own.

    Raises:
        InvalidInput: It has expired, or is for other names than the gateway has.
    """
    host = settings.gateway_host
    if host in LOOPBACK or site_certificate(settings) is None:
        return None
    return have_certificate(settings, [*settings.gateway_names, reached_by_itself(host)], now)


def _general(name: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    if len(name) > _MOST_CHARACTERS or _NAME.fullmatch(name) is None:
        allowed = "give a host name such as gpus.example.org, or an address, without a port"
        raise InvalidInput("name", name, allowed)
    return x509.DNSName(name.lower())


def _plain(name: str) -> str:
    """*name* as a certificate has it."""
    general = _general(name)
    return str(general.value)


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


def login_line(place: GatewayPlace, names: Sequence[str]) -> str:
    """What a user types who is to log in at *place*: by the first of *names* that fits there."""
    if place.certificate is None:
        return f"headway login {place.url}"
    where, known = urlsplit(place.url), {*pinning.names_of(place.certificate)} - {*LOOPBACK}
    host = next((each for each in names if each in known), where.hostname)
    seen = pinning.fingerprint(place.certificate)
    return f"headway login https://{host}:{where.port} --fingerprint {seen}"


def addresses_not_named(settings: Settings) -> str:
    """What to say where the gateway listens on addresses that its certificate is not for."""
    own = site_certificate(settings)
    if own is None or settings.gateway_host != EVERYWHERE:
        return ""
    others = [
        each.address
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family is socket.AF_INET and not each.address.startswith("127.")
        if each.address not in own.names and not name.startswith(_BRIDGES)
    ]
    told = f"the gateway's certificate is not for {', '.join(others)} of this machine"
    way = "to have users ask by one, add it to HEADWAY_GATEWAY_NAMES (machine.gateway_names)"
    return f"{told}; {way} and {RENEW}" if others else ""


def announced(ledger: Ledger) -> GatewayPlace | None:
    """Where other machines reach the site's gateway; None while it stays on its own machine."""
    told = ledger.settings.of((GATEWAY,)).get(GATEWAY)
    return GatewayPlace(**told) if told else None
