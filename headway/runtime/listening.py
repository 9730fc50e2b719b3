"""Whether a program listens at a port of this machine, and no other program does."""

import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_ANSWERING = frozenset(
    f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}"
    for address in ("127.0.0.1", "0.0.0.0")  # noqa: S104 - compared, not bound to
)
"""What listens on one of these gets what is sent to the loopback's port. A socket for IPv6 alone
may have the same port as another program's for IPv4, so it proves nothing."""
_LISTENS = "0A"
"""As the kernel's tables have it."""


def listens(pids: Iterable[int], port: int) -> bool:
    """Whether a socket of the processes *pids* gets what is sent to 127.0.0.1:*port*."""
    for pid in pids:
        with suppress(OSError):
            found = {
                f"socket:[{inode}]"
                for address, at, inode in _listening(Path(f"/proc/{pid}/net/tcp"))
                if at == port and address in _ANSWERING
            }
            descriptors = Path(f"/proc/{pid}/fd").iterdir() if found else ()
            if any(_leads_to(each) in found for each in descriptors):
                return True
    return False


def listening_ports() -> frozenset[int]:
    """The TCP ports at which anything of this machine listens; none where that is not told."""
    found = set[int]()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            found |= {port for _, port, _ in _listening(Path("/proc/net", table))}
    return frozenset(found)


def _listening(table: Path) -> Iterator[tuple[str, int, str]]:
    """Address, port and inode of what listens; of connections there may be very many, behind it."""
    with table.open() as lines:
        next(lines)
        for line in lines:
            words = line.split()
            if words[3] != _LISTENS:
                return
            address, _, port = words[1].rpartition(":")
            yield address, int(port, 16), words[9]


def _leads_to(descriptor: Path) -> str:
    with suppress(OSError):  # it was closed meanwhile
        return str(descriptor.readlink())
    return ""
