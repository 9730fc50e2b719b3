"""Flow processes that somebody stopped (SIGSTOP) and left so: they are killed.

Such a process goes on to hold its run's lock, so nobody follows the container, measures its
end or lets go of its lease. Another flow process takes up what a killed one leaves.
"""

import logging
from collections.abc import Iterable

import psutil

from headway.clock import Clock

log = logging.getLogger(__name__)

FROZEN_S = 60.0
"""Whoever looks into a process for a moment is left alone."""


class FrozenFlows:
    """Remembers since when which flow process has been stopped."""

    def __init__(self, clock: Clock) -> None:
        """Go by *clock*."""
        self._clock = clock
        self._since_s: dict[psutil.Process, float] = {}

    def kill(self, flows: Iterable[int]) -> None:
        """Kill those of the processes *flows* that were seen stopped `FROZEN_S` ago, and now."""
        now_s = self._clock.monotonic_s()
        stopped = {process for pid in flows if (process := _if_stopped(pid)) is not None}
        self._since_s = {each: self._since_s.get(each, now_s) for each in stopped}
        for process, since_s in self._since_s.items():
            if now_s - since_s >= FROZEN_S:
                log.warning(
                    "flow process %d is stopped (SIGSTOP) and nobody resumes it: it is killed",
                    process.pid,
                )
                process.kill()


def _if_stopped(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return process if process.status() == psutil.STATUS_STOPPED else None
    except psutil.NoSuchProcess:
        return None
