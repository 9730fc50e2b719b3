"""A notice: what a person is told of a run, once, through a block of Prefect's."""

import enum
from dataclasses import dataclass
from datetime import datetime

LONG_WAIT_S = 600.0
"""Whoever waited so long for a start has turned to something else, and is told of it."""
TRACKER = "headway-mlflow"
"""The type of the blocks by which ends are written to a team's tracker."""
RUN_TAG = "headway.run_id"
"""The tag by which a tracker's run is known as this one's."""


class NoticeKind(enum.StrEnum):
    """What is told."""

    STARTED = "started"
    """The first attempt has started, after a long wait."""
    ENDED = "ended"
    """The run has ended, however that was."""
    ARRAY_ENDED = "array_ended"
    """The last member of an array has ended."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice, as its sender takes it."""

    notice_id: int
    run_id: str | None
    array_id: str | None
    """One of both is given."""
    kind: NoticeKind
    block: str
    """The block that sends it: ``slack-webhook/vision`` is the type's slug and the name."""
    made_at: datetime
    taken_at: datetime | None
    error: str
    """Why it was not sent, as far as that is known; else empty."""
