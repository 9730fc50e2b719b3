"""Reads one container's log: its lines are passed on, and its progress becomes remaining time."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headway.estimate.remaining.remaining_time import RemainingTime
from headway.ledger.series import MAX_POINTS
from headway.model.progress import ProgressPoint
from headway.progress.parser import LogParser
from headway.run.environment_entry import MADE, MAKING
from headway.runtime.logfile import LogChunk
from headway.runtime.redact import Redactor

_TAIL_BYTES = 16_384
_MAKING, _MADE = (f"headway: {words}".encode() for words in (MAKING, MADE))


@dataclass(slots=True)
class LogProgress:
    """What one log has said so far.

    It is read from its start, also by a process that takes over: points are
    numbered, so none is kept twice.
    """

    _read: Callable[[int], LogChunk]
    """The log from an offset on."""
    _parser: LogParser
    _remaining: RemainingTime
    """Is told the progress."""
    _redactor: Redactor
    """Takes out what nobody may see."""
    _lines: Callable[[bytes, int], None]
    """Gets each piece of the log, and how many bytes before it were given up."""
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
        """Read what is new.

        Args:
            elapsed_s: Since the container's start.
            last: Nothing more comes: what may be the beginning of a secret is passed on too.
        """
        while True:
            chunk = self._read(self._offset)
            if not chunk.data and not chunk.skipped_bytes:
                break
            self._offset = chunk.next_offset
            held = self._redactor.rest() if chunk.skipped_bytes else b""
            data = held + self._redactor.feed(chunk.data)
            self._take(data, chunk.skipped_bytes, elapsed_s)
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
