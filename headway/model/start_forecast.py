"""What was said of when a waiting run starts, and when it did."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class StartForecast:
    """What was said of one run at one moment: at its submission, or later while it waited."""

    run_id: str
    said_at: datetime
    planned_s: float
    """How long it would still wait by the plan alone, before what was learnt of such plans."""
    earliest_at: datetime
    """Ends of the 80 % interval."""
    expected_at: datetime
    latest_at: datetime
    gpus: int
    """On all its nodes."""
    ahead: int
    """Runs before it in the queue."""
    at_submission: bool
    """It was the first that was said of the run."""
    started_at: datetime | None = None
    """When it was given its place; None while it waits, or where it never was."""

    @property
    def waited_s(self) -> float | None:
        """How long it still waited from then on; None while it waits."""
        if self.started_at is None:
            return None
        return max((self.started_at - self.said_at).total_seconds(), 0.0)
