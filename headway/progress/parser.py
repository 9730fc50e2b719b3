"""Log bytes become progress points, whatever framework wrote them."""

import math
import re

from headway.model.progress import ProgressPoint
from headway.progress.counting import RunCounter
from headway.progress.custom import CustomPattern
from headway.progress.format import Certainty, Format
from headway.progress.formats import known_formats
from headway.progress.layout import MAX_SHAPE_CHARS, MAX_SHAPES, shapes_of
from headway.progress.lines import LineSplitter
from headway.progress.seen import Seen
from headway.progress.stamps import LineClock

# What torchrun and MPI put before the lines of each rank: "[rank1]:", "[1,mpirank:1,algo-1]".
_RANK = re.compile(r"\s{0,4}\[(?:[0-9]{1,6},mpi)?rank[ :]?([0-9]{1,6})\b")
# What compose, pdsh and torchrun put before a line: "trainer-1  | ", "node-0: ", "[rank0]: ".
_LAUNCHER = re.compile(
    r"(?!(?i:epoch|step|iter|batch|round|fold))[A-Za-z][\w.-]{0,60}-[0-9]{1,5}(?: {1,40}\| |: )"
    r"|\s{0,4}\[rank[0-9]{1,6}\]: ?"
)
_DIGITS = re.compile(rb"0+")
_TRIES = 8
"""So often a line of one shape is shown to better formats; then none will read it."""
_MAX_DULL = 4096
_MAX_DULL_CHARS = 400
"""Of so many shapes so much is remembered, so that memory stays bounded."""


class LogParser:
    """Finds progress in the log of one attempt.

    Feed it the log as it comes. The format is found by itself from the first
    lines; a surer one replaces it when it shows later (a download's bar comes
    before the training). What cannot be read is passed over, never an error.

    Args:
        pattern: The job's own regular expression; see `CustomPattern`. Then
            only that is read, and headway's own protocol is not.
        epochs: Epochs or rounds there will be, where the job says so; logs often
            do not, and then the total follows from it.

    Raises:
        InvalidInput: *pattern* cannot be used.
    """

    def __init__(self, pattern: str | None = None, *, epochs: int | None = None) -> None:
        self._splitter = LineSplitter()
        self._epochs = epochs
        self._counter = RunCounter(epochs)
        self._found: Format | None = None
        self._clock = LineClock()
        self._rank: str | None = None
        self._dull: dict[bytes, int] = {}
        self._settled: dict[bytes, int] = {}
        self._better: tuple[Format, ...] = (
            known_formats()
            if pattern is None
            else (Format("custom", Certainty.PROTOCOL, ("",), CustomPattern(pattern)),)
        )

    @property
    def format(self) -> str | None:
        """Name of the format that was found; None so far."""
        return None if self._found is None else self._found.name

    @property
    def restarts(self) -> int:
        """How often the program began again from an earlier iteration."""
        return self._counter.restarts

    def feed(self, data: bytes, t_s: float) -> list[ProgressPoint]:
        """The points in the lines that *data* completes.

        Args:
            data: The next bytes of the log, cut anywhere.
            t_s: When they came, in seconds since the container started; NaN
                for a log that is read after the fact: then a point has the
                time its line says, since the first that says one, or NaN.
        """
        return self._points(self._splitter.feed(data), t_s)

    def finish(self, t_s: float) -> list[ProgressPoint]:
        """The points in a last line without an end; call it when the log is over."""
        return self._points(self._splitter.finish(), t_s)

    def _points(self, lines: list[str], t_s: float) -> list[ProgressPoint]:
        points: list[ProgressPoint] = []
        written = math.isnan(t_s)
        settled, add = self._settled, self._counter.add
        read = None if self._found is None else self._found.read
        for line, shape in zip(lines, shapes_of(lines), strict=True):
            if not line:
                continue
            cut = settled.get(shape)
            if cut is None:
                seen = self._read(line, shape)
                # It may have found a better format.
                add = self._counter.add
                read = None if self._found is None else self._found.read
            elif read is None:
                seen = None
            else:
                seen = read(line[cut:] if cut else line, shape)
            if written and (seen is not None or not self._clock.runs):
                t_s = self._clock.seconds(line)
            if seen is not None:
                point = add(seen, t_s)
                if point is not None:
                    points.append(point)
        return points

    def _is_another(self, rank: str) -> bool:
        """Whether a launcher marks a line as that of another *rank* than the first it marked."""
        self._rank = self._rank or rank
        return rank != self._rank

    def _read(self, line: str, shape: bytes) -> Seen | None:
        """Read by a better format than the one found, where there is one; else by that."""
        rank = _RANK.match(line) if "rank" in line else None
        if rank is not None and self._is_another(rank[0]):
            return None
        prefix = _LAUNCHER.match(line) if "-" in line or line.startswith("[rank") else None
        cut = 0 if prefix is None else prefix.end()
        line = line[cut:]
        if self._better:
            kind = _DIGITS.sub(b"0", shape[:_MAX_DULL_CHARS])
            tried = self._dull.get(kind, 0)
            if tried < _TRIES:
                seen = self._better_read(line, shape)
                if seen is not None:
                    return seen
                if len(self._dull) >= _MAX_DULL:
                    self._dull.clear()
                self._dull[kind] = tried + 1
                return None if self._found is None else self._found.read(line, shape)
        if rank is None and len(shape) <= MAX_SHAPE_CHARS:
            if len(self._settled) >= MAX_SHAPES:
                self._settled.clear()
            self._settled[shape] = cut
        return None if self._found is None else self._found.read(line, shape)

    def _better_read(self, line: str, shape: bytes) -> Seen | None:
        for candidate in self._better:
            for hint in candidate.hints:
                if hint in line:
                    break
            else:
                continue
            seen = candidate.read(line, shape)
            if seen is not None:
                self._take(candidate)
                return seen
        return None

    def _take(self, found: Format) -> None:
        self._found = found
        self._dull.clear()
        self._settled.clear()
        self._better = tuple(f for f in self._better if f.certainty > found.certainty)
        if not found.keeps_count:
            self._counter = RunCounter(
                self._epochs, counts=found.counts, steps_are_of_epoch=found.steps_are_of_epoch
            )
