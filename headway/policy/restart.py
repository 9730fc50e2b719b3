"""When a process of the site that has died is started again: soon, and ever more rarely."""

from dataclasses import dataclass, replace

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""A process that cannot start, for want of a disk say, costs one try a minute."""
STEADY_S = 10.0
"""A process that has been ready for so long is well: its next death is a new one."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """What is remembered of one process, in seconds of a clock that never goes back."""

    started_s: float | None = None
    """When it was started last; None as long as it never had to be."""
    ready_s: float | None = None
    """When it was ready after that; None for one that never was."""
    deaths: int = 0
    """So many times it died before it was steady, one after the other."""

    def due_s(self) -> float:
        """From when on it may be started again."""
        if self.started_s is None:
            return 0.0
        pause_s = FIRST_PAUSE_S * 2.0 ** min(self.deaths, 16)
        return self.started_s + min(pause_s, LONGEST_PAUSE_S)

    def started(self, now_s: float) -> "Restarts":
        """It is started now."""
        steady = self.ready_s is not None and now_s - self.ready_s > STEADY_S
        if self.started_s is None or steady:
            return Restarts(now_s)
        return Restarts(now_s, None, self.deaths + 1)

    def ready(self, now_s: float) -> "Restarts":
        """It is ready now, after the last start."""
        return replace(self, ready_s=now_s)
