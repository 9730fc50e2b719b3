"""Keras 2 and 3: ``Epoch 1/10``, then a bar or one line of results."""

import re

from headway.progress.seen import COUNT, Seen, metrics_in

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
        self._steps: int | None = None
        self._complete = False
        self._is_keras = False

    def __call__(self, line: str) -> Seen | None:
        """Read one line."""
        if "poch " in line and (match := _EPOCH.search(line)):
            self._epoch, self._epochs = int(match[1]), int(match[2])
            self._steps, self._complete = None, False
            # Others print such a line too: only a step that follows makes it Keras.
            return Seen({}, epoch=self._epoch, epochs=self._epochs) if self._is_keras else None
        if self._epoch is None:
            return None
        match = _STEP.search(line)
        if match is None and _SUMMARY.match(line):
            self._is_keras = True
            return Seen(metrics_in(line), epoch=self._epoch, epochs=self._epochs)
        if match is None:
            return None
        step, steps = int(match[1]), int(match[2]) if match[2] else None
        # A bar of another length after the epoch's own is complete is `Model.evaluate`.
        if self._complete and steps != self._steps:
            return None
        self._is_keras = True
        self._steps = steps
        self._complete = step == steps
        return Seen(
            # Behind the bar and the times, of which "3s" and "5ms/step" are no metrics.
            metrics_in(line[line.find(" - ", match.end()) :]),
            epoch=self._epoch,
            epochs=self._epochs,
            step=step,
            steps=steps,
        )
