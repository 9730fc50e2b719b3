"""The one place that reads the machine's clock.

Everything that needs the time is handed a `Clock`, so that a test or a
replay can move it. Times in the ledger are the database's, never these.
"""

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where a system has no clock of this name, its monotonic one runs on while it sleeps (macOS)."""


class Clock(Protocol):
    """What code that waits or measures may ask for."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...

    def boottime_s(self) -> float:
        """As `monotonic_s`, but it runs on while the machine sleeps."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for *seconds*."""
        ...


def booted_at(clock: Clock) -> datetime:
    """When the machine was started, by *clock* as it is set now."""
    return clock.now() - timedelta(seconds=clock.boottime_s())


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Seconds since some fixed point; immune to a jump of the wall clock."""
        return time.monotonic()

    def boottime_s(self) -> float:
        """Seconds since the machine was started, those in which it slept too."""
        return time.clock_gettime(_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Wait for *seconds*."""
        time.sleep(seconds)


class NowAndThen:
    """Whether something is due that is to be done once in so many seconds; at first it is."""

    def __init__(self, clock: Clock, every_s: float) -> None:
        """Due every *every_s* seconds of *clock*."""
        self._clock, self._every_s, self._next_s = clock, every_s, -math.inf

    def is_due(self) -> bool:
        """Whether it is; who hears so does it."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True
