"""What was said of when a waiting run starts, and when it did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from headway.model.run import Span


@dataclass(frozen=True, slots=True)
class StartForecast:
    """What was said of one run at one moment: at its submission, or later while it waited."""

    run_id: str
    said_at: datetime
    planned_s: float
    """How long it would still wait as the queue was played, before what was learnt of that."""
    planned_low_s: float
    """Ends of its 80 % interval, the same."""
    planned_high_s: float
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
        return None if self.started_at is None else self.waited_s_by(self.started_at)

    def waited_s_by(self, now: datetime) -> float:
        """How long it has waited from then on, *now*, or when it started."""
        return max(((self.started_at or now) - self.said_at).total_seconds(), 0.0)


_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_HOLDS = timedelta(minutes=15)
"""What was played longer ago tells nothing: the next play follows within some minutes."""


@dataclass(frozen=True, slots=True)
class PlayedStarts:
    """How long the runs of a pool wait, as its queue was played forward at one moment.

    It is the plan that people are told, each by any way, until it is played again.
    """

    at: datetime = _NEVER
    waits: Mapping[str, Span] = field(default_factory=dict)
    """From then on, by run."""
    left: Mapping[str, Span | None] = field(default_factory=dict)
    """How long those go on that held places then; None where nothing was known of it."""

    def as_of(self, now: datetime) -> "PlayedStarts":
        """Itself; none where nobody has played for too long."""
        return self if now - self.at < _HOLDS else PlayedStarts()

    def wait(self, run_id: str, now: datetime) -> Span | None:
        """How long the run waits from *now* on; None of one that joined since."""
        if (found := self.waits.get(run_id)) is None:
            return None
        return self._aged(found, now)

    def goes_on(self, run_id: str, now: datetime) -> Span | None:
        """How long a run of `left` goes on from *now* on, the same."""
        found = self.left[run_id]
        return found and self._aged(found, now)

    def _aged(self, found: Span, now: datetime) -> Span:
        since_s = (now - self.at).total_seconds()
        return Span(*(max(each - since_s, 0.0) for each in found))
