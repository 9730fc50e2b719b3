"""A certificate that a node makes for itself; the ledger says which one is its own."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headway.clock import Clock
from headway.durable import replace_file

_LASTS = timedelta(days=3650)
_CLOCKS_DIFFER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where certificate and key lie, as PEM."""

    certificate: Path
    key: Path


def own_certificate(folder: Path, clock: Clock) -> CertificateFiles:
    """Make a new certificate with its key in *folder*; only this very one is to be trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headway node")])
    now = clock.now()
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LASTS)
        .sign(key, hashes.SHA256())
    )
    files = CertificateFiles(folder / "files.crt", folder / "files.key")
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    replace_file(files.key, pem)
    replace_file(files.certificate, made.public_bytes(serialization.Encoding.PEM))
    return files
