"""What a data set may be read from: directories of this node, and addresses of the network.

Pure. The kernel refuses what the job's user may not read; these rules refuse
what that user could read and a job has no business with.
"""

import ipaddress
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Self

_NEVER = ("/proc", "/sys", "/dev")
_SYSTEM = ("/etc", "/root", "/run", "/var/run", "/boot")
_KEYS = frozenset(
    {
        ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".netrc", ".pgpass",
        ".prefect", ".headway", ".git-credentials", ".pypirc", ".npmrc", ".password-store",
    }
)  # fmt: skip
"""Names under which people keep what opens other doors."""
_CLOSED = tuple(map(ipaddress.ip_network, ("168.63.129.16/32", "::/96", "fec0::/10")))
"""Public by their number alone: Azure's metadata, IPv4-compatible and site-local addresses."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class SourceRules:
    """Where the data sets of a site may come from."""

    roots: tuple[str, ...] = ()
    """Real paths below which data may lie; none for any that is not closed."""
    closed: tuple[str, ...] = ()
    """Real paths that are never read, whatever the roots: what headway keeps."""
    samples: str = ""
    """The one directory in what is closed that may be read; empty for none."""
    hosts: tuple[str, ...] = ()
    """Networks, addresses and names that may be asked although they are not public."""

    @classmethod
    def read(cls, document: dict[str, Any]) -> Self:
        """From what `write` gave, through JSON."""
        roots, closed, hosts = (tuple(document[name]) for name in ("roots", "closed", "hosts"))
        return cls(roots, closed, str(document["samples"]), hosts)

    def write(self) -> dict[str, Any]:
        """For the process that reads data sets."""
        return asdict(self)

    def why_not(self, real: str) -> str | None:
        """Why a file or directory is not to be read, by its path without links; None if it may."""
        path = PurePosixPath(real)
        if self.samples and path.is_relative_to(self.samples):
            return None
        system = _NEVER if self.roots else _NEVER + _SYSTEM
        if path == PurePosixPath("/") or _below(path, system):
            return f"{real} belongs to the system"
        if _below(path, self.closed):
            return f"{real} belongs to headway"
        if found := _KEYS.intersection(path.parts):
            return f"{real} lies in {min(found)}, where keys are kept"
        if self.roots and not _below(path, self.roots):
            return f"{real} is not below this site's mount roots, {', '.join(self.roots)}"
        return None


def _below(path: PurePosixPath, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def closed_address(address: Address, listed: tuple[Network, ...] = ()) -> bool:
    """Is *address* one that a job must not make this node ask: no public one, and not *listed*?

    An IPv4 address within an IPv6 one counts as itself.
    """
    inner = _inner(address)
    if any(each in network for each in (address, inner) for network in listed):
        return False
    if any(inner in network for network in _CLOSED):
        return True
    return inner.is_multicast or not inner.is_global


def _inner(address: Address) -> Address:
    """The IPv4 address that a mapped, 6to4, Teredo or NAT64 one leads to; else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address
