"""Whether a program listens at a port of this machine, and no other program does."""

from collections.abc import Iterable
from contextlib import suppress

import psutil

_ANSWERING = frozenset({"127.0.0.1", "0.0.0.0"})  # noqa: S104 - compared, not bound to
"""What listens on one of these gets what is sent to the loopback's port. A socket for IPv6 alone
may have the same port as another program's for IPv4, so it proves nothing."""


def listens(pids: Iterable[int], port: int) -> bool:
    """Whether a socket of the processes *pids* gets what is sent to 127.0.0.1:*port*."""
    for pid in pids:
        with suppress(psutil.Error):
            for each in psutil.Process(pid).net_connections(kind="tcp4"):
                at = each.laddr
                if each.status == psutil.CONN_LISTEN and at.port == port and at.ip in _ANSWERING:
                    return True
    return False
