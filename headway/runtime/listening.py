"""Whether a program listens at a port of this machine, and no other program does."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

_ANSWERING = frozenset({"127.0.0.1", "0.0.0.0"})  # noqa: S104 - compared, not bound to
"""What listens on one of these gets what is sent to the loopback's port. A socket for IPv6 alone
may have the same port as another program's for IPv4, so it proves nothing."""


_LISTENS = "0A"
"""As the kernel's tables have it."""


def listens(pids: Iterable[int], port: int) -> bool:
    """Whether a socket of the processes *pids* gets what is sent to 127.0.0.1:*port*."""
    for pid in pids:
        with suppress(psutil.Error):
            for each in psutil.Process(pid).net_connections(kind="tcp4"):
                at = each.laddr
                if each.status == psutil.CONN_LISTEN and at.port == port and at.ip in _ANSWERING:
                    return True
    return False


def listening_ports() -> frozenset[int]:
    """The TCP ports at which anything of this machine listens; none where that is not told."""
    found = set[int]()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                local, _, state = line.split()[1:4]
                if state == _LISTENS:
                    found.add(int(local.rpartition(":")[2], 16))
    return frozenset(found)
