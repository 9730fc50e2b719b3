"""What Prefect says of a run."""

import enum
from typing import NamedTuple

AWAITING_HEADROOM = "AwaitingHeadroom"
"""Name of the state of a run that waits, as headway writes it."""

RETRIED = "AwaitingRetry"
"""Name of the state of a run whose user pressed Retry, as Prefect's page and its API write it."""


class PrefectView(enum.StrEnum):
    """What Prefect says about a run, as far as it matters here."""

    SCHEDULED = "scheduled"
    """It is to start; of a run that has ended: its user wants it once more."""
    AWAITING = "awaiting"
    """The same as headway itself says of a run that waits: nobody's wish, whenever it comes."""
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
    def of(cls, state_type: str | None, name: str | None = "", for_s: float = 0.0) -> "PrefectView":
        """What a state of Prefect's means here after *for_s*, by its type, such as PENDING."""
        if (state_type, name) == ("SCHEDULED", AWAITING_HEADROOM):
            return cls.AWAITING
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
