"""Certificates that sign themselves: a node's own, which the ledger names, and the gateway's."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from headway.clock import Clock
from headway.durable import replace_file

_LASTS = timedelta(days=3650)
_CLOCKS_DIFFER = timedelta(days=1)
"""A client's clock may be behind the site's."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where certificate and key lie, as PEM."""

    certificate: Path
    key: Path


def own_certificate(folder: Path, clock: Clock) -> CertificateFiles:
    """Make a new certificate with its key in *folder*; only this very one is to be trusted."""
    files = CertificateFiles(folder / "files.crt", folder / "files.key")
    keep_self_signed(files, ec.generate_private_key(ec.SECP256R1()), "headway node", clock.now())
    return files


def keep_self_signed(
    files: CertificateFiles,
    key: ec.EllipticCurvePrivateKey,
    name: str,
    now: datetime,
    extensions: Sequence[tuple[x509.ExtensionType, bool]] = (),
) -> None:
    """Write a certificate that *key* has signed for itself, and the key, the key first.

    Args:
        files: Where.
        key: New.
        name: Its common name.
        now: It holds from a day before, as clocks differ, for ten years.
        extensions: Each with whether it is critical.
    """
    common = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(common)
        .issuer_name(common)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LASTS)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    made = builder.sign(key, hashes.SHA256())
    replace_file(files.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    replace_file(files.certificate, made.public_bytes(Encoding.PEM))
