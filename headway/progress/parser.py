"""A log in pieces becomes progress points, whatever framework wrote it."""

import math

import re2

from headway.model.progress import ProgressPoint
from headway.progress.formats import FORMATS, MAX_COUNT, Format, Said, headway, own

LONGEST_LINE_BYTES = 16_384
"""Of a longer line only the beginning is read."""
_UNDECIDED_LINES = 5_000
"""So long after the last hit other formats than the found one are tried again."""
_ESCAPES = re2.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x08")


class LogParser:
    """Reads one log from its first byte; pieces may be cut anywhere.

    Attributes:
        format: Name of the format that was found; None before.
    """

    def __init__(self, pattern: str | None = None, *, epochs: int | None = None) -> None:
        """Begin before the first byte.

        Args:
            pattern: The job's own RE2 expression; wins over all formats.
            epochs: Epochs or rounds there will be, where the job says; logs often do not.

        Raises:
            ValueError: *pattern* is no RE2 expression.
        """
        self.format: str | None = None
        self._own = own(pattern) if pattern is not None else None
        self._partial = b""
        self._misses = 0
        self._epoch: int | None = None
        self._epochs = epochs
        self._done = {"iteration": -1.0, "epoch": -1.0}

    def feed(self, data: bytes, t_s: float) -> list[ProgressPoint]:
        """The points that *data*, read at *t_s*, completes. Never raises."""
        # A bar is redrawn after \r: each redrawing is a line of its own.
        *lines, partial = (self._partial + data).replace(b"\r", b"\n").split(b"\n")
        self._partial = partial[:LONGEST_LINE_BYTES]
        points = []
        for line in lines:
            if line:
                said = self._read(line)
                point = self._point(said, t_s) if said is not None else None
                if point is not None:
                    points.append(point)
        return points

    def _read(self, raw: bytes) -> Said | None:
        raw = raw[:LONGEST_LINE_BYTES]
        if b"\x1b" in raw or b"\x08" in raw:
            raw = _ESCAPES.sub(b"", raw)
        line = raw.decode("utf-8", "replace")
        if self._own is not None:
            self.format = "own"
            return self._own(line)
        if self.format is not None and self._misses < _UNDECIDED_LINES:
            said = FORMATS[self.format](line) or headway(line)
            if said is None and self.format in {"tqdm", "huggingface"}:
                # The Trainer prints both a bar and its dictionaries.
                said = FORMATS["tqdm"](line) or FORMATS["huggingface"](line)
            self._misses = 0 if said is not None else self._misses + 1
            return said
        return self._find(line)

    def _find(self, line: str) -> Said | None:
        for name, read in FORMATS.items():
            said = _tried(read, line)
            if said is not None:
                self.format, self._misses = name, 0
                return said
        return None

    def _point(self, said: Said, t_s: float) -> ProgressPoint | None:
        """A point, if the line brings the run further; N ranks say the same N times."""
        if said.epoch is not None:
            self._epoch = said.epoch
        if said.epochs is not None:
            self._epochs = said.epochs
        iteration, total = said.step, said.steps
        if self._epoch is None:
            total = total or self._epochs
        elif said.steps:
            # Steps are counted anew in each epoch: make them one count.
            if said.step is not None:
                iteration = (self._epoch - 1) * said.steps + said.step
            total = self._epochs * said.steps if self._epochs else None
        epoch = said.epoch_done
        if epoch is None and self._epoch is not None and said.step is not None:
            epoch = self._epoch - 1 + (said.step / said.steps if said.steps else 0.0)
        kind = "iteration" if iteration is not None else "epoch"
        done = iteration if iteration is not None else epoch
        if done is None or not math.isfinite(done) or not 0 <= done <= MAX_COUNT:
            return None
        if done <= self._done[kind]:
            return None  # said already, or said by a program that starts over
        self._done[kind] = float(done)
        return ProgressPoint(t_s, iteration, epoch, total, said.metrics)


def _tried(read: Format, line: str) -> Said | None:
    """RE2 refuses some text outright (lone surrogates); then the line says nothing."""
    try:
        return read(line)
    except (re2.error, UnicodeError):
        return None
