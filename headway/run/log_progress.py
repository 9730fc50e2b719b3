"""Reads one container's log: its lines are passed on, and its progress becomes remaining time.

Files in which its program keeps its progress are read beside it, and say more surely how far it is:
they count, unless the log was printed for headway, or knows how much there will be and they do not.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

from headway.clock import Clock
from headway.estimate.remaining.course import Course
from headway.estimate.remaining.remaining_time import RemainingTime
from headway.ledger.series import MAX_POINTS
from headway.model.progress import ProgressPoint
from headway.progress.parser import LogParser
from headway.run.environment_entry import MADE, MAKING
from headway.run.written_progress import WrittenProgress, placed
from headway.runtime.logfile import LogChunk
from headway.runtime.redact import Redactor

_TAIL_BYTES = 16_384
_PIECE_BYTES = 1 << 14
_TURN_S, _LAST_TURN_S = 0.2, 1.0
"""Time for what is new at one reading, and for what is left at the end."""
_BEHIND_BYTES = 16 << 20
"""So much may wait for the next reading; what is older is passed over."""
_END = 1 << 62
"""Beyond the end of every log: whoever reads there is told where that is."""
_MAKING, _MADE = (f"headway: {words}".encode() for words in (MAKING, MADE))


@dataclass(slots=True)
class LogProgress:
    """What one log has said so far.

    It is read from its start, also by a process that takes over: points are
    numbered, so none is kept twice.
    """

    _read: Callable[[int, int], LogChunk]
    """The log from an offset on, at most so many bytes."""
    _clock: Clock
    _parser: LogParser
    _remaining: RemainingTime
    """Is told the progress."""
    _redactor: Redactor
    """Takes out what nobody may see."""
    _lines: Callable[[bytes, int], None]
    """Gets each piece of the log, and how many bytes before it were passed over."""
    _written: WrittenProgress | None = None
    """What its program writes into files; None where that is not looked for."""
    _usual: NormalDist | None = None
    """Of the logarithm of its iterations, by runs like it; None where these do not tell."""
    _usual_epochs: NormalDist | None = None
    """The same of its epochs."""
    _course: Course | None = None
    """How the speed of a run like it changed; None where it did not, or that is not known."""
    phase: str = ""
    """What it does before its program starts; empty once that runs."""
    point: ProgressPoint | None = None
    """The newest; None before the first."""
    _logged: ProgressPoint | None = None
    """The newest of the log."""
    _counts: object = None
    """The file that says how far the run is; None where the log does."""
    _has_read: bool = False
    """Whether the log was read before: at first all of it comes at once."""
    _units: int = 0
    _offset: int = 0
    _kept: int = 0
    _unkept: list[ProgressPoint] = field(default_factory=list)
    _tail: deque[bytes] = field(default_factory=lambda: deque(maxlen=4))

    @property
    def tail(self) -> str:
        """The end of the log."""
        return b"".join(self._tail)[-_TAIL_BYTES:].decode(errors="replace")

    def read(self, elapsed_s: float, *, last: bool = False) -> None:
        """Read what is new, for a moment; of a log that grows faster, the newest.

        Args:
            elapsed_s: Since the container's start.
            last: Nothing more comes: what may be the beginning of a secret is passed on too.
        """
        if self._written is not None:
            # Before the log: where there are files, all of it is read in their position, also by a
            # process that takes over, and counts as many points as the one before.
            points = self._written.read(elapsed_s, last=last)
            if self._does_log_count():
                self._add(points if self._logged else (), self._logged)
            else:
                # They come in bursts, as a file is flushed: each is one report.
                self._add(points)
                self._tell(points[-1:])
        until_s = self._clock.monotonic_s() + (_LAST_TURN_S if last else _TURN_S)
        may_wait_bytes, is_late = 0 if last else _BEHIND_BYTES, False
        while True:
            start = self._offset
            if is_late:
                end = self._read(_END, 0).next_offset
                start = max(start, end - may_wait_bytes - _PIECE_BYTES)
            chunk = self._read(start, _PIECE_BYTES)
            skipped_bytes = start - self._offset + chunk.skipped_bytes
            if not chunk.data and not skipped_bytes:
                break
            self._offset, data = chunk.next_offset, chunk.data
            if skipped_bytes:
                # What was held back, and the line that begins in the gap, may be parts of secrets.
                data = data[_line_start(data) :]
                skipped_bytes += len(self._redactor.rest()) + len(chunk.data) - len(data)
            self._take(self._redactor.feed(data), skipped_bytes, elapsed_s)
            if is_late:
                break
            is_late = self._clock.monotonic_s() >= until_s
        if last:
            self._take(self._redactor.rest(), 0, elapsed_s)
        self._has_read = True

    def keep(self, keep: Callable[[int, Sequence[ProgressPoint]], None]) -> None:
        """Have new points kept, and those before that could not be."""
        if self._unkept:
            keep(self._kept, self._unkept)
            self._kept += len(self._unkept)
            self._unkept = []

    def _take(self, data: bytes, skipped_bytes: int, elapsed_s: float) -> None:
        if not data and not skipped_bytes:
            return
        self._lines(data, skipped_bytes)
        if skipped_bytes:
            self._parser.cut()
        self._tail.append(data[-_TAIL_BYTES:])
        end = b"".join(self._tail)
        began, ended = end.rfind(_MAKING), end.rfind(_MADE)
        if began != ended:  # else neither is there
            was, self.phase = self.phase, MAKING if began > ended else ""
            if was and not self.phase and self._has_read:  # else nobody saw when that was
                self._remaining.begin(elapsed_s)
        points = self._parser.feed(data, elapsed_s)
        self._remaining.may_end_early = self._parser.may_end_early
        self._logged = points[-1] if points else self._logged
        if self._does_log_count():
            if self._units != self._parser.units:
                self._units = self._parser.units
                self._course = None  # whose units are others
                self._remaining.count_what_follows()
            self._add(points)
            self._tell(points)
        elif self._written is not None:
            self._add(points, self._written.point)

    def _does_log_count(self) -> bool:
        """Whether the log says how far the run is; who else does may count in another unit."""
        written = self._written
        counting = None if written is None or self._log_knows_more(written) else written.counting
        if counting is not self._counts:
            self._counts = counting
            self._remaining.count_anew()
        return counting is None

    def _log_knows_more(self, written: WrittenProgress) -> bool:
        """A file seldom says how much there will be, and is often told of later than the log."""
        logged, at = self._logged, written.point
        if at is None or self._parser.is_told:
            return True
        known = logged is not None and logged.total
        return bool(known) and (not written.states_total or at.total == known)

    def _tell(self, points: Sequence[ProgressPoint]) -> None:
        for point in points:
            done = point.iteration if point.iteration is not None else point.epoch
            count = "epochs" if point.iteration is None else "iterations"
            course = self._course
            if done is not None:
                self._remaining.update(
                    point.t_s,
                    done,
                    point.total,
                    epoch=None if point.iteration is None else point.epoch,
                    usual=None if self._parser.is_part else self._usual_of(point),
                    took_s=point.epoch_took_s,
                    course=course if course is not None and course.count == count else None,
                )

    def _usual_of(self, point: ProgressPoint) -> NormalDist | None:
        """The law of the logarithm of what *point* counts, by the iterations or epochs of others.

        The surer of the two: a run of the same epochs may have other batches.
        """
        laws = [self._usual] if self._usual and point.iteration is not None else []
        if self._usual_epochs and point.epoch:
            of_epoch = 1.0 if point.iteration is None else point.iteration / point.epoch
            laws += [self._usual_epochs + math.log(of_epoch)] if of_epoch > 0.0 else []
        return min(laws, key=lambda law: law.stdev, default=None)

    def _add(self, points: Sequence[ProgressPoint], at: ProgressPoint | None = None) -> None:
        """Take in *points*; their metrics only, in the position *at*, where one is given."""
        if at is not None:
            points = [placed(each, at) for each in points if each.metrics]
        self.point = points[-1] if points else self.point
        self._unkept += points
        # All that come later replace the newest one there.
        del self._unkept[MAX_POINTS - 1 : -1]


def _line_start(data: bytes) -> int:
    """Where the first line begins whose beginning is in *data*."""
    ends = (at for end in b"\n\r" if (at := data.find(end)) >= 0)
    return min(ends, default=len(data) - 1) + 1
