"""Which finished runs' folders and checkpoints a node lets go of: by age, then by size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headway.units import DAY_S, format_duration, format_size


@dataclass(frozen=True, slots=True)
class Finished:
    """What lies here of a run that has ended and that nobody is at work on."""

    run_id: str
    name: str
    ended_at: datetime
    size_bytes: int
    keep_s: float | None = None
    """What its team is given; None where its team is not spoken of."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What is to be removed of one run, and why."""

    run: Finished
    why: str


def to_remove(
    runs: Sequence[Finished], now: datetime, *, keep_s: float | None, keep_bytes: int | None
) -> list[Removal]:
    """Those of *runs* whose folders go, oldest first.

    Args:
        runs: Finished ones only: what may still run, or run again, is none of them.
        now: On the clock of their ends.
        keep_s: Folders of runs that ended longer ago go; None: age does not matter.
        keep_bytes: All that stay together take at most so much; None: size does not matter.
    """
    found = []
    left_bytes = sum(run.size_bytes for run in runs)
    for run in sorted(runs, key=lambda run: (run.ended_at, run.run_id)):
        age_s = (now - run.ended_at) / timedelta(seconds=1)
        limit_s = min((s for s in (keep_s, run.keep_s) if s is not None), default=None)
        if limit_s is not None and age_s > limit_s:
            why = f"it ended {format_duration(age_s)} ago; kept are {format_duration(limit_s)}"
        elif keep_bytes is not None and left_bytes > keep_bytes:
            why = f"finished runs take more than {format_size(keep_bytes)}; it is the oldest left"
        else:
            continue
        left_bytes -= run.size_bytes
        found.append(Removal(run, why))
    return found


def ended_before(
    now: datetime, *, keep_s: float | None, of_teams: Mapping[str, float | None]
) -> tuple[datetime | None, dict[str, datetime]]:
    """When runs have ended whose files went by age: those of all, and of teams that keep less.

    Args:
        now: On the clock of their ends.
        keep_s: As `to_remove` has it.
        of_teams: What each team is given; None where its team is not spoken of.
    """
    before = None if keep_s is None else now - timedelta(seconds=keep_s)
    moments = {
        team: now - timedelta(seconds=each) for team, each in of_teams.items() if each is not None
    }
    return before, moments


def seconds(days: float | None) -> float | None:
    """*days* in seconds; None stays None."""
    return None if days is None else days * DAY_S
