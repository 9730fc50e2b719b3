"""Reads one container's log: its lines are passed on, and its progress becomes remaining time."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headway.clock import Clock
from headway.estimate.remaining.remaining_time import RemainingTime
from headway.ledger.series import MAX_POINTS
from headway.model.progress import ProgressPoint
from headway.progress.parser import LogParser
from headway.run.environment_entry import MADE, MAKING
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
    phase: str = ""
    """What it does before its program starts; empty once that runs."""
    point: ProgressPoint | None = None
    """The newest; None before the first."""
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
            self.phase = MAKING if began > ended else ""
        points = self._parser.feed(data, elapsed_s)
        for point in points:
            self.point = point
            done = point.iteration if point.iteration is not None else point.epoch
            if done is not None:
                epoch = None if point.iteration is None else point.epoch
                self._remaining.update(point.t_s, done, point.total, epoch=epoch)
        self._unkept += points
        # All that come later replace the newest one there.
        del self._unkept[MAX_POINTS - 1 : -1]


def _line_start(data: bytes) -> int:
    """Where the first line begins whose beginning is in *data*."""
    ends = (at for end in b"\n\r" if (at := data.find(end)) >= 0)
    return min(ends, default=len(data) - 1) + 1
