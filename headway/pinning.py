"""Which certificate a gateway shows, and by what a person recognises it.

A site's own certificate is signed by nobody else: whoever logs in compares its fingerprint with
the one that the operator told, and from then on that certificate alone is trusted.
"""

import hashlib
import socket
import ssl
from urllib.parse import urlsplit

from headway.errors import GatewayUnreachable, InvalidInput

LOOPBACK = ("127.0.0.1", "localhost")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is compared, and bound to only where an operator says so
_TIMEOUT_S = 20.0
_DIGEST_CHARACTERS = 64
_FOR_ANOTHER = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h: it looks
at the name once it trusts the certificate."""


class CertificateRefused(GatewayUnreachable):
    """The gateway at *url* shows another certificate than the one that is trusted."""

    line = (
        "the certificate at {url} is not the one that is trusted here ({cause}), so nothing was "
        "sent: it has expired (`headway doctor` there says so), its operator has renewed it, or "
        "somebody stands between you and the site. Ask the operator for the fingerprint (`headway "
        "certificate`), then `headway login` again"
    )


class CertificateOfOtherNames(CertificateRefused):
    """The gateway at *url* shows the certificate that is trusted, which is for other *names*."""

    host: str
    names: str
    line = (
        "the certificate at {url} is for {names}, not for {host}, so nothing was sent: use one of "
        "these names, or have the site's operator add it to HEADWAY_GATEWAY_NAMES "
        "(machine.gateway_names) and type `headway certificate --renew`"
    )


def fingerprint(pem: str) -> str:
    """The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` prints it."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, _DIGEST_CHARACTERS, 2))


def same_fingerprint(one: str, other: str) -> bool:
    """Whether both are the same, however they are written.

    Raises:
        InvalidInput: *one*, which a person gave, is none: a part of it would fit too much.
    """
    digits = one.replace(":", "").strip().lower()
    if len(digits) != _DIGEST_CHARACTERS or set(digits) - set("0123456789abcdef"):
        allowed = "give the 64 hexadecimal digits that `headway certificate` prints at the site"
        raise InvalidInput("fingerprint", one, allowed)
    return digits == other.replace(":", "").lower()


def reached_by_itself(host: str) -> str:
    """The name by which a machine itself asks what it has bound to *host*."""
    return LOOPBACK[0] if host in {*LOOPBACK, EVERYWHERE} else host


def is_protected(url: str) -> bool:
    """Whether a token may be sent to *url*: over TLS, or without leaving this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in LOOPBACK


def trust(url: str, certificate: str | None) -> ssl.SSLContext | bool:
    """What httpx is to check at *url*: that it shows *certificate*, or one known here for None."""
    if not url.startswith("https:"):
        return False  # there is nothing to check, and to read all certificates takes a while
    if certificate is None:
        return True
    return ssl.create_default_context(cadata=certificate)


def only(certificate: str) -> ssl.SSLContext:
    """What trusts this certificate and no other, whatever name it is for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


def shown_certificate(url: str) -> str:
    """The certificate that the gateway at *url* shows, in PEM; nothing is sent to it.

    Raises:
        GatewayUnreachable: Nobody answers there, or without TLS.
    """
    try:
        return ssl.get_server_certificate(_service(url), timeout=_TIMEOUT_S)
    except OSError as error:
        raise GatewayUnreachable(url, str(error) or type(error).__name__) from error


def is_known_here(url: str) -> bool:
    """Whether this machine trusts the certificate at *url* anyway: somebody known signed it."""
    host, port = _service(url)
    try:
        with (
            socket.create_connection((host, port), timeout=_TIMEOUT_S) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host),
        ):
            return True
    except OSError:
        return False


def names_of(certificate: str) -> list[str]:
    """The names and addresses that *certificate*, in PEM, is for.

    Raises:
        ValueError: It is no certificate, or has no names.
    """
    from cryptography import x509  # noqa: PLC0415 - few commands need it, and it takes long

    try:
        read = x509.load_pem_x509_certificate(certificate.encode())
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as error:
        raise ValueError(str(error)) from error
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def refused_certificate(
    url: str, certificate: str | None, error: BaseException
) -> CertificateRefused | None:
    """What to say where a connection to *url*, which is to show *certificate*, ended with *error*.

    None where it did not end at the certificate.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    why = cause.verify_message or "it is not trusted"
    if cause.verify_code not in _FOR_ANOTHER:
        return CertificateRefused(url, why)
    names = ", ".join(sorted(names_of(certificate))) if certificate else "other names"
    return CertificateOfOtherNames(url, why, _service(url)[0], names)


def _service(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 443
