"""Progress bars of tqdm, and of those who draw with it: Lightning, Hugging Face, YOLO.

A program may draw several: a download before the training, an inner bar for
each epoch of an outer one, a validation between two parts of the training.
`Bars` finds the one that tells how far the training is.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from headway.progress.metrics import MAX_SHAPES, shape_of
from headway.progress.seen import COUNT, Seen, metrics_in

_BAR = re.compile(
    r"([0-9]{1,3})%(?:\|[^|]{0,400}\|)?\s{0,8}([0-9.]{1,20})([kMGT]?)/([0-9.]{1,20})([kMGT]?)"
    r"[^\[<]{0,12}\[([0-9:]{1,12})<([0-9:?]{1,12})(?:,\s{0,4}([0-9.?]{1,12}\s?[a-zA-Z/]{1,24}))?"
)
_ENDLESS = re.compile(r"(?:^|[\s:])" + COUNT + r"it \[([0-9:]{1,12}), ")
_RICH = re.compile(
    r"Epoch " + COUNT + "/" + COUNT + r"\s{1,4}[━╸╺ ]{2,200}\s{0,4}" + COUNT + "/" + COUNT + " "
)
_EPOCH = re.compile(
    r"(?i)\bep(?:och)?s?\b[\s:=#\[(]{0,6}" + COUNT + r"(?:\s{0,3}(?:/|of)\s{0,3}" + COUNT + ")?"
)
# YOLO: "  1/100  2.5G  1.2 …"; torchtune: "1|25|Loss: 1.2".
_YOLO = re.compile(
    r"^" + COUNT + r"(?:/" + COUNT + r"\s{2,12}[0-9.]{1,8}[GMK]|\|[0-9]{1,12}\|Loss)"
)
# Words that name work beside the training.
_BESIDE = re.compile(
    r"(?i)valid|\bval\b|eval|\btest|predict|infer|sanity|download|map\b|map \(|filter|token|loading"
    r"|fetch|generat|extract|unzip|resolv|cach|scanning|plotting|saving|collect|preproc|running"
    r"|shards|embed|warm ?up|class\b|build|fusing"
)
_SCALE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
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
        self._main: _Bar | None = None
        self._inner: _Bar | None = None
        self._named = False
        self._from_zero = False
        self._newest: tuple[str, _Bar] | None = None
        self._beside: dict[bytes, bool] = {}

    def __call__(self, line: str) -> Seen | None:
        """Read one line."""
        match = _BAR.search(line) if "%" in line else None
        if match is None:
            return self._other(line)
        text = line[: match.start()][-200:].strip()
        if text and self._is_beside(text):
            return None
        done, total = _scaled(match[2], match[3]), _scaled(match[4], match[5])
        if done is None or not total:
            return None
        metrics = metrics_in(line[match.end() :])
        if text and (epoch := _YOLO.search(text) or _EPOCH.search(text)):
            self._named = True
            return self._of_epoch(text, epoch, done, total, metrics)
        if self._named:
            return None
        return self._unnamed(text, done, total, _length_s(match[6], match[7]), metrics)

    def _is_beside(self, text: str) -> bool:
        """Whether *text* names work beside the training; asked once of texts of one shape."""
        shape = shape_of(text)
        beside = self._beside.get(shape)
        if beside is None:
            if len(self._beside) >= MAX_SHAPES:
                self._beside.clear()
            beside = self._beside[shape] = _BESIDE.search(text) is not None
        return beside

    def _of_epoch(
        self, text: str, match: re.Match[str], done: int, total: int, metrics: dict[str, float]
    ) -> Seen:
        """A bar whose text names the epoch."""
        epoch, epochs = int(match[1]), int(match[2]) if match[2] else None
        if match.re is _YOLO:
            # YOLOv5 counts from 0 and names the last one: 0/2, 1/2, 2/2.
            self._from_zero = self._from_zero or epoch == 0
            epoch += self._from_zero
            epochs = epochs + self._from_zero if epochs is not None else None
        more = metrics_in(text[match.end() :])
        return Seen(more | metrics, None, None, epoch, epochs, done, total)

    def _other(self, line: str) -> Seen | None:
        """Lightning's rich bar, and a bar that does not know its total."""
        if "━" in line and (match := _RICH.search(line)):
            epoch, epochs, step, steps = map(int, match.groups())
            # Lightning shows the last index: 0/9 is the first of ten.
            last = Seen(metrics_in(line[match.end() :]), epoch=epoch, epochs=epochs)
            self._named = True
            return last._replace(step=step, steps=steps)
        if "it [" in line and not self._bars and (match := _ENDLESS.search(line)):
            if _BESIDE.search(line[: match.start()][-200:]):
                return None
            return Seen(metrics_in(line[match.end() :]), iteration=int(match[1]))
        return None

    def _unnamed(
        self, text: str, done: int, total: int, length_s: float, metrics: dict[str, float]
    ) -> Seen | None:
        """A bar that does not name its epoch: find its place among the others."""
        key = (_without_digits(text) if text else "", total)
        bar = self._bars.get(key)
        if bar is None and self._newest is not None:
            before, newest = self._newest
            # A new bar is first drawn at 0; else only the text of the newest one has changed.
            if newest.total == total and newest.done <= done and (done > 0 or not before):
                bar = self._bars[key] = newest
        if bar is None:
            if len(self._bars) >= MAX_BARS:
                self._bars.pop(next(iter(self._bars)))
            bar = self._bars[key] = _Bar(total)
        bar.move(done, length_s)
        self._newest = (text, bar)
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
        return Seen(metrics, step=done, steps=total)

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


def _replaces(bar: _Bar, main: _Bar) -> bool:
    """Whether *main* was something before the training, and *bar* is the training.

    A bar that comes after a full one and is much shorter is a validation.
    """
    if main.full and not main.cycles and bar.length_s > 0.5 * main.length_s:
        return True
    longer = bar.length_s > main.length_s
    return longer and (main.full or bar.cycles > 0 or bar.done > 100)


def _scaled(number: str, unit: str) -> int | None:
    try:
        return int(float(number) * _SCALE[unit])
    except ValueError:
        return None


def _without_digits(text: str) -> str:
    return text.translate(_DIGITS)


_DIGITS = dict.fromkeys(map(ord, "0123456789"))


def _length_s(elapsed: str, remaining: str) -> float:
    """Seconds of ``[elapsed<remaining``; 0 while the bar does not know."""
    if "?" in remaining:
        return 0.0
    return _clock_s(elapsed) + _clock_s(remaining)


def _clock_s(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + (int(part) if part else 0)
    return seconds


class HuggingFace:
    """The Trainer: a bar of optimiser steps, and dictionaries with numbers."""

    _dictionary = re.compile(r"\{'(?:loss|eval_|train_|epoch|grad_norm|learning_rate)")
    hints = ("{'", "Num Epochs = ", "Total optimization steps = ")
    _settings = re.compile(r"(Num Epochs|Total optimization steps) = ([0-9,]{1,20})")
    _step = re.compile(r"'step': '?" + COUNT)
    _epoch = re.compile(r"'epoch': '?([0-9]{1,9}(?:\.[0-9]{1,12})?)'?")

    def __init__(self, bars: Callable[[str], Seen | None]) -> None:
        self._bars = bars
        self._settled: dict[str, int] = {}
        self._has_bar = False
        self._has_spoken = False

    def __call__(self, line: str) -> Seen | None:
        """Read one line."""
        match = self._dictionary.search(line) if "{'" in line else None
        if match is None:
            if " = " in line and (setting := self._settings.search(line)):
                self._settled[setting[1]] = int(setting[2].replace(",", "") or 0)
                self._has_spoken = True
                return Seen({})
            if not self._has_spoken:
                return None  # other dictionaries, of a program that is none of the Trainer's
            seen = self._bars(line)
            self._has_bar = self._has_bar or (seen is not None and seen.step is not None)
            return seen
        epoch = self._epoch.search(line, match.start())
        if epoch is None:
            return None
        self._has_spoken = True
        # The bar may stand on the same line, before the dictionary.
        bar = self._bars(line[: match.start()])
        metrics = metrics_in(line[match.start() :])
        if bar is not None and bar.step is not None:
            self._has_bar = True
            return bar._replace(metrics=metrics, epoch_done=float(epoch[1]))
        return self._without_bar(line, float(epoch[1]), metrics)

    def _without_bar(self, line: str, epoch: float, metrics: dict[str, float]) -> Seen:
        """Steps as the dictionary has them, or from the share of the epochs that is done."""
        epochs = self._settled.get("Num Epochs") or None
        total = self._settled.get("Total optimization steps") or None
        if self._has_bar:
            return Seen(metrics, epochs=epochs, epoch_done=epoch)
        step = self._step.search(line)
        if step is not None:
            metrics.pop("step", None)
            return Seen(metrics, int(step[1]), total, epochs=epochs, epoch_done=epoch)
        if epochs and total:
            return Seen(metrics, round(total * min(epoch / epochs, 1.0)), total, epoch_done=epoch)
        return Seen(metrics, epochs=epochs, epoch_done=epoch)


class Lightning:
    """PyTorch Lightning: bars that name the epoch, and what it says before the first one."""

    hints = ("v_num", "GPU available: ", "LOCAL_RANK: ", "Sanity Checking", "`Trainer.")

    def __init__(self, bars: Callable[[str], Seen | None]) -> None:
        self._bars = bars

    def __call__(self, line: str) -> Seen | None:
        """Read one line."""
        seen = self._bars(line)
        if seen is None:
            return Seen({}) if any(hint in line for hint in self.hints) else None
        # "Training: 0/1016", drawn before the first epoch's bar, has an epoch's total.
        return Seen({}) if seen.epoch is None else seen
