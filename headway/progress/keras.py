"""Keras 2 and 3: ``Epoch 1/10``, then a bar or one line of results."""

import re

from headway.progress.layout import ByShape, Places
from headway.progress.metrics import COUNT, numbers_in
from headway.progress.seen import Seen

_EPOCH = re.compile(r"(?:^|[\s>:])Epoch " + COUNT + "/" + COUNT + r"\s*$", re.ASCII)
_STEP = re.compile(
    r"^\W{0,6}" + COUNT + r"/(?:" + COUNT + r"|Unknown|None) (?=.{0,120}?"
    r"(?:\[[=>.]|━|[0-9]s\b|(?:us|ms|s)/(?:step|sample|epoch)|ETA:))",
    re.ASCII,
)


# Keras before 2.3, verbose=2: no count, one line for each epoch.
_SUMMARY = re.compile(r"^ - [0-9]{1,9}s(?: [0-9]{1,9}[mu]?s/(?:step|sample|epoch))? - \w{1,60}: ")


class Keras:
    """The lines of `Model.fit`, with ``verbose=1`` and ``verbose=2``."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._epochs: int | None = None
        self._length: int | None = None
        self._steps = ByShape(_step_places)
        self._summaries = ByShape(_summary_places)
        self._complete = False
        self._is_keras = False

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        if "poch " in line and (match := _EPOCH.search(line)):
            self._epoch, self._epochs = int(match[1]), int(match[2])
            self._length, self._complete = None, False
            # Others print such a line too: only a step that follows makes it Keras.
            return Seen({}, epoch=self._epoch, epochs=self._epochs) if self._is_keras else None
        if self._epoch is None:
            return None
        layout = self._steps.layout(line, shape)
        if layout is None:
            return self._summary(line, shape)
        seen = layout.read(line)
        step, steps = seen.step, seen.steps
        # A bar of another length after the epoch's own is complete is `Model.evaluate`.
        if self._complete and steps != self._length:
            return None
        self._is_keras = True
        self._length = steps
        self._complete = step == steps
        return Seen(seen.metrics, None, None, self._epoch, self._epochs, step, steps)

    def _summary(self, line: str, shape: bytes) -> Seen | None:
        seen = self._summaries(line, shape)
        if seen is None:
            return None
        self._is_keras = True
        return Seen(seen.metrics, epoch=self._epoch, epochs=self._epochs)


def _step_places(line: str) -> Places | None:
    match = _STEP.search(line)
    if match is None:
        return None
    # Behind the bar and the times, of which "3s" and "5ms/step" are no metrics.
    begin = line.find(" - ", match.end())
    numbers = numbers_in(line, begin if begin >= 0 else len(line) - 1)
    return Places({"step": match.span(1), "steps": match.span(2)}, numbers)


def _summary_places(line: str) -> Places | None:
    return Places({}, numbers_in(line, 0)) if _SUMMARY.match(line) else None
