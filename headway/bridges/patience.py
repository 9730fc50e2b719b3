"""Asking a gateway that may be away for a while: what goes on meanwhile at the site is not lost."""

from collections.abc import Callable
from typing import TypeVar

from headway.client.download import DownloadFailed
from headway.clock import Clock, SystemClock
from headway.errors import GatewayRefused, SiteUnreachable, may_come_back

T = TypeVar("T")
LONGEST_S = 600.0
_PAUSE_S = 2.0


def patiently(ask: Callable[[], T], clock: Clock | None = None) -> T:
    """What *ask* gives; it is asked again while the gateway is away, for ten minutes at most.

    Args:
        ask: Does no harm twice: a run is submitted with a key.
        clock: The machine's for None.

    Raises:
        HeadwayError: As *ask* raised it at last.
    """
    ticking = clock or SystemClock()
    until_s = ticking.monotonic_s() + LONGEST_S
    while True:
        try:
            return ask()
        except (SiteUnreachable, GatewayRefused, DownloadFailed) as error:
            lasting = isinstance(error, GatewayRefused) and not may_come_back(error)
            if lasting or ticking.monotonic_s() >= until_s:
                raise
        ticking.sleep(_PAUSE_S)
