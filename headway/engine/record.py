"""What a job's wrapper writes of it, and how it ended by that.

The wrapper runs as the job's user, who can write anything in its place: numbers have bounds here.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from headway.model.run import Exit, ExitKind

_MOST_CHARACTERS = 500
_Moment = Annotated[float, Field(ge=0, le=1e11)]
"""Seconds since the epoch, in years of four digits."""
_Whole = Annotated[int, Field(ge=-(2**31), lt=2**31)]


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:_MOST_CHARACTERS])


_Line = Annotated[str, AfterValidator(_one_line)]


@dataclass(frozen=True, slots=True)
class Record:
    """What the wrapper wrote of the last start."""

    job: _Line
    node: _Line = ""
    restart: _Whole = 0
    started_at: _Moment = 0.0
    ended_at: _Moment | None = None
    """None while it runs, and where its machine was lost."""
    asked_at: _Moment | None = None
    """When it was sent SIGTERM."""
    timed_out: bool = False
    """For its time being over, by its wrapper."""
    cancelled: bool = False
    exit_code: _Whole | None = None
    signal: _Whole | None = None
    oom_kills: _Whole = 0
    error: _Line = ""

    @property
    def end(self) -> Exit | None:
        """How it ended, by its own record alone; None while it has not."""
        code, asked = self.exit_code, self.asked_at is not None
        if self.ended_at is None or code is None:
            return None
        how = f"killed by signal {self.signal}" if self.signal else f"ended with exit code {code}"
        kind, message = ExitKind.FAILED, self.error or f"its program {how}; see its log"
        if self.cancelled:
            kind, message = ExitKind.CANCELLED, "cancelled by its user"
        elif code and self.oom_kills:
            kind, message = ExitKind.OUT_OF_MEMORY, "killed at its memory limit"
        elif self.timed_out:
            kind, message = ExitKind.TIMED_OUT, "asked to stop since its time was over"
        elif asked:
            # The engine knows why: its time, somebody's command, a job that took its place.
            message = "the engine asked it to stop, and does not say why any more"
            kind = ExitKind.CANCELLED
        elif code == 0:
            kind, message = ExitKind.OK, ""
        return Exit(kind, code, message)


def moment(seconds: float | None) -> datetime | None:
    """A time of a record."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
