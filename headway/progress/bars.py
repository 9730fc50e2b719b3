"""Progress bars of tqdm and rich, and of those who draw with them: Lightning, Hugging Face, YOLO.

A program may draw several: a download before the training, an inner bar for
each epoch of an outer one, a validation between two parts of the training.
`Bars` finds the one that tells how far the training is.
"""

import re
from dataclasses import dataclass

from headway.progress.drawn import Drawn, drawn, is_beside
from headway.progress.patterns import OTHER_BARS
from headway.progress.places import by_shape
from headway.progress.rows import PatternReader
from headway.progress.seen import Seen

# A line that says what the bars below it are about.
_TURN = re.compile(
    r"(?i)\b(?:(validating|evaluating|running (?:validation|evaluation|prediction))|training)"
    r"\W{0,12}$"
)
MAX_BARS = 64


@dataclass(slots=True)
class _Bar:
    """One bar, known by its text without digits and by its total."""

    total: int
    done: int = 0
    cycles: int = 0
    length_s: float = 0.0
    """How long it takes from 0 to its total, as it says itself; 0 when unknown."""

    def move(self, done: int, length_s: float) -> None:
        """Take the next reading; a bar that was (nearly) full and is low again began anew."""
        if done < self.done and self.done >= 0.9 * self.total and done <= 0.5 * self.total:
            self.cycles += 1
        self.done = done
        if length_s > 0:
            self.length_s = length_s

    @property
    def full(self) -> bool:
        return self.done >= self.total


class Bars:
    """Reads bars, and says what the one that counts the training says."""

    def __init__(self) -> None:
        self._drawn = by_shape(drawn)
        self._turn = by_shape(lambda shape: _TURN.search(shape[-60:]))
        self._others = PatternReader(OTHER_BARS)
        self._bars: dict[tuple[str, int], _Bar | None] = {}
        """By label and total; None for those that were full at first sight."""
        self._main: _Bar | None = None
        self._inner: _Bar | None = None
        self._named = False
        self._from_zero = False
        self._aside = False
        self._newest: tuple[str, _Bar] | None = None

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        bar = self._drawn(shape) if "%" in line or "━" in line else None
        if bar is None:
            return self._other(line, shape)
        if bar.is_beside or (self._named and not bar.names_epoch):
            return None
        said = bar.places.read(line)
        if bar.is_percent:
            said = said._replace(steps=100)
        if not said.steps:
            return None
        if bar.names_epoch:
            self._named = True
            # YOLOv5 counts from 0 and names the last one: 0/2, 1/2, 2/2.
            self._from_zero = self._from_zero or (bar.is_yolo and said.epoch == 0)
            if self._from_zero and said.epoch is not None and said.epochs is not None:
                return said._replace(epoch=said.epoch + 1, epochs=said.epochs + 1)
            return said
        return self._unnamed(bar, said, bar.length_s(line))

    def _other(self, line: str, shape: str) -> Seen | None:
        """A bar that does not know its total."""
        seen = self._others(line, shape)
        if seen is not None and self._main is None:
            if seen.step == 0:
                return None  # nothing is done yet, or the bar is cleared for the next epoch
            is_at_once = "it [00:00," in line
            return None if is_at_once or is_beside(line.partition("it [")[0]) else seen
        if turn := self._turn(shape):
            self._aside = turn[1] is not None
        return None

    def _unnamed(self, drawn: Drawn, said: Seen, length_s: float) -> Seen | None:
        """A bar that does not name its epoch: find its place among the others."""
        done, total = said.step or 0, said.steps or 0
        key = drawn.label, total
        bar = self._bars.get(key) or self._newest_if_same(drawn.label, done, total)
        if bar is None and not (self._aside or done >= total or key in self._bars):
            bar = _Bar(total)
        if bar is not None or done >= total:
            self._bars[key] = bar
        if len(self._bars) > MAX_BARS:
            self._bars.pop(next(iter(self._bars)))
        if bar is None:
            return None  # of a validation, or one of many that were full at first sight
        bar.move(done, length_s)
        self._newest = (drawn.label, bar)
        self._choose(bar)
        main, inner = self._main, self._inner
        if main is None or (bar is not main and bar is not inner):
            return None
        if inner is not None:
            epoch = min(max(main.done, inner.cycles), main.total - 1)
            step = inner.done if bar is inner else 0
            if bar is main and done >= total:
                step = inner.total
            return said._replace(epoch=epoch + 1, epochs=main.total, step=step, steps=inner.total)
        return said

    def _newest_if_same(self, label: str, done: int, total: int) -> _Bar | None:
        """The bar that was drawn last, if only its text has changed, or its total has grown."""
        if self._newest is not None:
            had_label, newest = self._newest
            # A new bar is first drawn at 0.
            if newest.total == total and newest.done <= done and (done > 0 or not had_label):
                return newest
            if label == had_label and 0 < newest.done <= done < total and not newest.full:
                newest.total = total
                return newest
        return None

    def _choose(self, bar: _Bar) -> None:
        """Decide whether *bar* is the training, a part of it, or something beside it."""
        main, inner = self._main, self._inner
        if main is None:
            self._main = bar
        elif bar is main:
            if inner is not None and bar.done > inner.cycles + 2:
                self._inner = None  # it moves on without the other: they are not nested
        elif inner is None and main.done == 0 and main.cycles == 0:
            self._inner = bar
        elif (
            bar is not inner
            and bar.length_s > main.length_s  # a shorter one is a validation
            and (main.full or (inner is None and (bar.cycles > 0 or bar.done > 100)))
        ):
            self._main, self._inner = bar, None
