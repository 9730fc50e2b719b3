"""Runs from their start on a node to the end of their flow process."""

from headway.clock import Clock
from headway.policy.restart import Restarts

_REMEMBERED_S = 600.0
"""A run that was not tried for so long after its rest is elsewhere, or nobody wants it any more."""


class Starts:
    """What this worker starts and has started.

    A run whose start has failed rests before it is started here again, longer each time.
    """

    def __init__(self, clock: Clock) -> None:
        """Nothing was started yet; runs rest by *clock*."""
        self._clock = clock
        self._failed: dict[str, Restarts] = {}
        self._held: set[str] = set()

    @property
    def held(self) -> frozenset[str]:
        """Runs that are being started, or whose flow process goes on."""
        return frozenset(self._held)

    @property
    def resting(self) -> frozenset[str]:
        """Runs that are not to be started here now, since their last start has failed."""
        now_s = self._clock.monotonic_s()
        self._failed = {
            run_id: seen
            for run_id, seen in self._failed.items()
            if now_s < seen.due_s() + _REMEMBERED_S
        }
        return frozenset(run_id for run_id, seen in self._failed.items() if now_s < seen.due_s())

    def begin(self, run_id: str) -> None:
        """It is to be started."""
        self._held.add(run_id)

    def over(self, run_id: str, *, well: bool) -> None:
        """It has no flow process here any more; *well* where that had taken up its lease."""
        self._held.discard(run_id)
        seen = self._failed.pop(run_id, Restarts())
        if not well:
            self._failed[run_id] = seen.started(self._clock.monotonic_s())
