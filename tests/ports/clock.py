"""A clock that tests move."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Stands still until somebody sleeps; then it is later, at once."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)) -> None:
        """Begin at *start*."""
        self._start = start
        self._passed_s = 0.0
        self._jump_s = 0.0
        self._suspended_s = 0.0

    def now(self) -> datetime:
        """The time of day, with every jump."""
        passed_s = self._passed_s + self._suspended_s + self._jump_s
        return self._start + timedelta(seconds=passed_s)

    def monotonic_s(self) -> float:
        """Seconds slept so far; jumps do not count."""
        return self._passed_s

    def boottime_s(self) -> float:
        """Seconds slept and suspended so far; jumps do not count."""
        return self._passed_s + self._suspended_s

    def suspend(self, seconds: float) -> None:
        """Be *seconds* later as a machine is that was suspended meanwhile."""
        self._suspended_s += seconds

    def sleep(self, seconds: float) -> None:
        """Be *seconds* later."""
        self._passed_s += seconds

    def jump(self, seconds: float) -> None:
        """Move the time of day alone, as an operator or a time server does."""
        self._jump_s += seconds
