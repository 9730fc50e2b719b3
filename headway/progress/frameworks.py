"""Frameworks whose lines mean more together than each alone."""

from headway.progress.metrics import is_settings
from headway.progress.patterns import HUGGING_FACE, KERAS, LIGHTNING, SCIKIT_LEARN, TASKS
from headway.progress.places import Reader, by_shape
from headway.progress.rows import PatternReader
from headway.progress.seen import Seen
from headway.progress.tables import Table
from headway.progress.words import Words, thousands, without


class BarsAndWords:
    """Bars, and between them the words that tell which epoch they are about."""

    def __init__(self, bars: Reader, words: Words) -> None:
        self._bars = bars
        self._words = words
        self._has_bar = False

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        seen = self._bars(line, shape)
        self._has_bar = self._has_bar or seen is not None
        if seen is not None or not self._has_bar or "poch" not in line or "%|" in line:
            return seen
        said = self._words(line, shape)
        if said is None or said.epoch is None:
            return None
        return said._replace(step=None, steps=None)


class Lightning:
    """PyTorch Lightning: bars that name the epoch, and what it says before the first one."""

    def __init__(self, bars: Reader) -> None:
        self._bars = bars
        self._lines = PatternReader(LIGHTNING)
        self._has_spoken = False

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        own = self._lines(line, shape)
        self._has_spoken = self._has_spoken or own is not None
        seen = self._bars(line, shape) if self._has_spoken else None
        if seen is None:
            return own
        # "Training: 0/1016", drawn before the first epoch's bar, has an epoch's total.
        return Seen({}) if seen.epoch is None else seen


class HuggingFace:
    """The Trainer: a bar of optimiser steps, and dictionaries with numbers."""

    def __init__(self, bars: Reader) -> None:
        self._bars = bars
        self._lines = PatternReader(HUGGING_FACE)
        self._is_settings = by_shape(is_settings)
        self._commas = by_shape(thousands)
        self._has_bar = False
        self._has_spoken = False

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        if commas := self._commas(shape):
            line, shape = without(line, commas), without(shape, commas)
        is_settings = "{'" in line and self._is_settings(shape)
        said = None if is_settings else self._lines(line, shape)
        self._has_spoken = self._has_spoken or said is not None
        if said is None:
            # Before, a bar is that of a program which is none of the Trainer's.
            return self._bar(line, shape) if self._has_spoken else None
        if said.epoch_done is None:
            return said
        # The bar may stand on the same line, before the dictionary.
        begin = line.index("{'")
        bar = self._bar(line[:begin], shape[:begin]) if "%" in line else None
        if bar is not None and bar.step is not None:
            return bar._replace(metrics=said.metrics, epoch_done=said.epoch_done)
        if self._has_bar:
            return said._replace(iteration=None, total=None)
        if said.iteration is None and said.epochs and said.total:
            share = min(said.epoch_done / said.epochs, 1.0)
            return said._replace(iteration=round(said.total * share))
        return said

    def _bar(self, line: str, shape: str) -> Seen | None:
        seen = self._bars(line, shape)
        self._has_bar = self._has_bar or (seen is not None and seen.step is not None)
        return seen


class Keras:
    """The lines of `Model.fit`: ``Epoch 1/10``, then a bar or one line of results."""

    def __init__(self) -> None:
        self._lines = PatternReader(KERAS)
        self._full = (0, 0)
        """Epochs begun, and steps, when a bar was last full."""

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        seen = self._lines(line, shape)
        if seen is None or seen.epoch is None or seen.step is None:
            return seen if seen is None or seen.epoch is not None else None
        # A bar of another length after the epoch's own is full is `Model.evaluate`.
        begun, length = self._full
        if begun == self._lines.heard and length != seen.steps:
            return None
        self._full = (self._lines.heard, seen.steps or 0) if seen.step == seen.steps else (0, 0)
        return seen


class ScikitLearn:
    """MLP, SGD, gradient boosting (both), forests, k-means, t-SNE, joblib's tasks."""

    def __init__(self) -> None:
        self._lines = PatternReader(SCIKIT_LEARN)
        self._tasks = PatternReader(TASKS)
        self._table: Table | None = None
        self._builds_trees = False

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        seen = self._lines(line, shape)
        if seen is not None:
            self._builds_trees = self._builds_trees or seen.total is not None
            return seen
        if not self._builds_trees and (seen := self._tasks(line, shape)) is not None:
            return seen  # tasks are the progress where nothing finer is said
        if line.startswith("      Iter       Train Loss"):
            self._table = Table()
        return None if self._table is None else self._table(line, shape)
