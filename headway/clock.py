"""The one place that reads the machine's clock.

Everything that needs the time is handed a `Clock`, so that a test or a
replay can move it. Times in the ledger are the database's, never these.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What code that waits or measures may ask for."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for *seconds*."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Seconds since some fixed point; immune to a jump of the wall clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for *seconds*."""
        time.sleep(seconds)
