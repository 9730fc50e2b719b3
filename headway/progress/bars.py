"""Progress bars of tqdm, and of those who draw with it: Lightning, Hugging Face, YOLO.

A program may draw several: a download before the training, an inner bar for
each epoch of an outer one, a validation between two parts of the training.
`Bars` finds the one that tells how far the training is.
"""

import re
from dataclasses import dataclass

from headway.progress.drawn import Drawn, NoBar, drawn, is_beside
from headway.progress.format import Reader
from headway.progress.layout import (
    MAX_SHAPE_CHARS,
    MAX_SHAPES,
    ByShape,
    Layout,
    Places,
    shape_of,
)
from headway.progress.metrics import COUNT, is_settings, numbers_in
from headway.progress.seen import Seen

_ENDLESS = re.compile(r"(?:^|[\s:])" + COUNT + r"it \[([0-9:]{1,12}), ")
_RICH = re.compile(
    r"Epoch " + COUNT + "/" + COUNT + r"\s{1,4}[━╸╺ ]{2,200}\s{0,4}" + COUNT + "/" + COUNT + " "
)
# A line that says what the bars below it are about.
_TURN = re.compile(
    r"(?i)\b(?:(validating|evaluating|running (?:validation|evaluation|prediction))|training)"
    r"\W{0,12}$"
)
_AT_ONCE = re.compile(r"[0:]{1,12}")
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
        self._bars: dict[tuple[str, int], _Bar] = {}
        self._seen_full: set[tuple[str, int]] = set()
        self._main: _Bar | None = None
        self._inner: _Bar | None = None
        self._named = False
        self._from_zero = False
        self._aside = False
        self._newest: tuple[bool, _Bar] | None = None
        self._shapes: dict[bytes, Drawn | NoBar] = {}

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        if "%" not in line:
            return self._other(line)
        try:
            bar = self._shapes[shape]
        except KeyError:
            bar = self._learn(line, shape)
        if isinstance(bar, NoBar):
            return self._other(line) if bar is NoBar.NONE else None
        if self._named and not bar.names_epoch:
            return None
        said = bar.layout.read(line)
        if bar.scales is not None:
            done, total = bar.scaled(line) or (None, None)
            said = said._replace(step=done, steps=total)
        if not said.steps:
            return None
        if bar.names_epoch:
            self._named = True
            return self._of_epoch(said) if bar.is_yolo else said
        return self._unnamed(bar, said, bar.length_s(line))

    def _learn(self, line: str, shape: bytes) -> Drawn | NoBar:
        learnt = drawn(line)
        if len(shape) <= MAX_SHAPE_CHARS:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = learnt
        return learnt

    def _of_epoch(self, said: Seen) -> Seen:
        """YOLOv5 counts from 0 and names the last one: 0/2, 1/2, 2/2."""
        self._from_zero = self._from_zero or said.epoch == 0
        if not self._from_zero:
            return said
        epoch, epochs = said.epoch, said.epochs
        return said._replace(
            epoch=None if epoch is None else epoch + 1,
            epochs=None if epochs is None else epochs + 1,
        )

    def _other(self, line: str) -> Seen | None:
        """Lightning's rich bar, and a bar that does not know its total."""
        if "━" in line and (match := _RICH.search(line)):
            epoch, epochs, step, steps = map(int, match.groups())
            # Lightning shows the last index: 0/9 is the first of ten.
            self._named = True
            return Seen(_metrics(line, match.end()), None, None, epoch, epochs, step, steps)
        if "it [" in line and not self._bars and (match := _ENDLESS.search(line)):
            if is_beside(line[: match.start()]) or _AT_ONCE.fullmatch(match[2]):
                return None
            return Seen(_metrics(line, match.end()), iteration=int(match[1]))
        if turn := _TURN.search(line[-60:]):
            self._aside = turn[1] is not None
        return None

    def _unnamed(self, drawn: Drawn, said: Seen, length_s: float) -> Seen | None:
        """A bar that does not name its epoch: find its place among the others."""
        metrics, done, total = said.metrics, said.step or 0, said.steps or 0
        key = drawn.label, total
        bar = self._bars.get(key)
        if bar is None:
            bar = self._newest_if_same(done, total)
            if bar is None and done >= total and len(self._seen_full) < MAX_BARS:
                self._seen_full.add(key)
            if bar is None and (self._aside or done >= total or key in self._seen_full):
                return None  # of a validation, or one of many that were full at first sight
            if len(self._bars) >= MAX_BARS:
                self._bars.pop(next(iter(self._bars)))
            bar = self._bars[key] = bar or _Bar(total)
        bar.move(done, length_s)
        self._newest = (drawn.has_text, bar)
        self._choose(bar)
        main, inner = self._main, self._inner
        if main is None or (bar is not main and bar is not inner):
            return None
        if inner is not None:
            epoch = min(max(main.done, inner.cycles), main.total - 1)
            step = inner.done if bar is inner else 0
            if bar is main and done >= total:
                step = inner.total
            return Seen(metrics, None, None, epoch + 1, main.total, step, inner.total)
        return said

    def _newest_if_same(self, done: int, total: int) -> _Bar | None:
        """The bar that was drawn last, if only its text has changed."""
        if self._newest is not None:
            had_text, newest = self._newest
            # A new bar is first drawn at 0.
            if newest.total == total and newest.done <= done and (done > 0 or not had_text):
                return newest
        return None

    def _choose(self, bar: _Bar) -> None:
        """Decide whether *bar* is the training, a part of it, or something beside it."""
        main, inner = self._main, self._inner
        if main is None:
            self._main = bar
        elif inner is not None:
            if bar is main and bar.done > inner.cycles + 2:
                self._inner = None  # it moves on without the other: they are not nested
            elif (
                bar is not main and bar is not inner and main.full and bar.length_s > main.length_s
            ):
                self._main, self._inner = bar, None
        elif bar is not main:
            if main.done == 0 and main.cycles == 0:
                self._inner = bar
            elif _replaces(bar, main):
                self._main = bar


def _metrics(line: str, begin: int) -> dict[str, float]:
    return Layout(line, Places({}, numbers_in(line, begin))).read(line).metrics


def _replaces(bar: _Bar, main: _Bar) -> bool:
    """Whether *main* was something before the training, and *bar* is the training.

    A bar that comes after a full one and is shorter is a validation.
    """
    share = 0.5 if bar.total > main.total else 1.0
    if main.full and not main.cycles and bar.length_s > share * main.length_s:
        return True
    longer = bar.length_s > main.length_s
    return longer and (main.full or bar.cycles > 0 or bar.done > 100)


class HuggingFace:
    """The Trainer: a bar of optimiser steps, and dictionaries with numbers."""

    _dictionary = re.compile(r"\{'(?:loss|eval_|train_|epoch|grad_norm|learning_rate)")
    hints = ("{'", "Num Epochs = ", "Total optimization steps = ")
    _settings = re.compile(r"(Num Epochs|Total optimization steps) = ([0-9,]{1,20})")
    _step = re.compile(r"'step': '?" + COUNT)
    _epoch = re.compile(r"'epoch': '?([0-9]{1,9}(?:\.[0-9]{1,12})?)'?")

    def __init__(self, bars: Reader) -> None:
        self._bars = bars
        self._dictionaries = ByShape(self._places)
        self._settled: dict[str, int] = {}
        self._has_bar = False
        self._has_spoken = False

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        said = self._dictionaries(line, shape) if "{'" in line else None
        if said is None or said.epoch_done is None:
            return None if said is not None else self._without_dictionary(line, shape)
        self._has_spoken = True
        if "%" in line:
            # The bar may stand on the same line, before the dictionary.
            before = line[: line.index("{'")]
            bar = self._bars(before, shape_of(before))
            if bar is not None and bar.step is not None:
                self._has_bar = True
                return bar._replace(metrics=said.metrics, epoch_done=said.epoch_done)
        return self._without_bar(said)

    def _places(self, line: str) -> Places | None:
        match = self._dictionary.search(line)
        if match is None or is_settings(line):
            return None
        epoch, step = self._epoch.search(line, match.start()), self._step.search(line)
        counts = {} if epoch is None else {"epoch_done": epoch.span(1)}
        if step is not None:
            counts["step"] = step.span(1)
        return Places(counts, numbers_in(line, match.start()))

    def _without_dictionary(self, line: str, shape: bytes) -> Seen | None:
        if " = " in line and (setting := self._settings.search(line)):
            self._settled[setting[1]] = int(setting[2].replace(",", "") or 0)
            self._has_spoken = True
            return Seen({})
        if not self._has_spoken:
            return None  # other dictionaries, of a program that is none of the Trainer's
        seen = self._bars(line, shape)
        self._has_bar = self._has_bar or (seen is not None and seen.step is not None)
        return seen

    def _without_bar(self, said: Seen) -> Seen:
        """Steps as the dictionary has them, or from the share of the epochs that is done."""
        epochs = self._settled.get("Num Epochs") or None
        total = self._settled.get("Total optimization steps") or None
        metrics, epoch = said.metrics, said.epoch_done or 0.0
        if self._has_bar:
            return Seen(metrics, None, None, None, epochs, None, None, epoch)
        if said.step is not None:
            return Seen(metrics, said.step, total, None, epochs, None, None, epoch)
        if epochs and total:
            step = round(total * min(epoch / epochs, 1.0))
            return Seen(metrics, step, total, None, None, None, None, epoch)
        return Seen(metrics, None, None, None, epochs, None, None, epoch)


class Lightning:
    """PyTorch Lightning: bars that name the epoch, and what it says before the first one."""

    hints = ("v_num", "GPU available: ", "LOCAL_RANK: ", "Sanity Checking", "`Trainer.")

    def __init__(self, bars: Reader) -> None:
        self._bars = bars

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        seen = self._bars(line, shape)
        if seen is None:
            return Seen({}) if any(hint in line for hint in self.hints) else None
        # "Training: 0/1016", drawn before the first epoch's bar, has an epoch's total.
        return Seen({}) if seen.epoch is None else seen
