"""What Prefect says of a run."""

import enum
from typing import NamedTuple


class PrefectView(enum.StrEnum):
    """What Prefect says about a run, as far as it matters here."""

    SCHEDULED = "scheduled"
    """Some worker will claim it; of a run that has ended: its user wants it once more."""
    ACTIVE = "active"
    """Pending or running: a flow process should be there."""
    PENDING = "pending"
    """Pending for longer than a flow process takes to begin."""
    PAUSED = "paused"
    """Its user asks to suspend it."""
    SUSPENDED = "suspended"
    """The same for as long as the user likes, as headway itself writes it."""
    CRASHED = "crashed"
    """Prefect saw its flow process die."""
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    FAILED = "failed"
    """Its flow broke, or its time to be suspended is over."""
    COMPLETED = "completed"
    MISSING = "missing"
    """Deleted: nobody wants it any more."""
    UNKNOWN = "unknown"
    """The server does not answer; nothing may be concluded."""

    @classmethod
    def of(cls, state_type: str | None, for_s: float = 0.0) -> "PrefectView":
        """What Prefect's type of a run's state, such as PENDING, means here after *for_s*."""
        if state_type == "PENDING" and for_s > _BEGINS_WITHIN_S:
            return cls.PENDING
        return _BY_STATE_TYPE.get(state_type or "", cls.UNKNOWN)


_BEGINS_WITHIN_S = 60.0
"""Of twenty flow processes at once on two cores with a load of thirteen the slowest took 20 s."""
_BY_STATE_TYPE = {
    "SCHEDULED": PrefectView.SCHEDULED,
    "PENDING": PrefectView.ACTIVE,
    "RUNNING": PrefectView.ACTIVE,
    "PAUSED": PrefectView.PAUSED,
    "FAILED": PrefectView.FAILED,
    "CRASHED": PrefectView.CRASHED,
    "CANCELLING": PrefectView.CANCELLING,
    "CANCELLED": PrefectView.CANCELLED,
    "COMPLETED": PrefectView.COMPLETED,
}


class News(enum.Enum):
    """What Prefect tells of a run the moment it happens."""

    SCHEDULED = enum.auto()
    ASKED = enum.auto()
    """Its user may have asked something of it, or somebody else than its flow called it ended."""


class RunNews(NamedTuple):
    """A run has a new state."""

    run_id: str
    news: News
    queue: str
    """Its work queue; empty where it has none."""
