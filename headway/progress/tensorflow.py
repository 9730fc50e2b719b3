"""TensorFlow's estimators and slim, and Caffe."""

import re

from headway.progress.layout import ByShape, Places, by_patterns
from headway.progress.metrics import COUNT, NUMBER, numbers_in
from headway.progress.seen import Seen


def tensorflow_reader() -> ByShape:
    """``loss = 0.3, step = 100``, ``global step 100: loss = …``, ``Step 100 per-step …``."""
    return by_patterns(
        r"\b(?:step|global_step) = %iteration%\b",
        r"(?:tensorflow:|\] |: )(?:global )?[Ss]tep %iteration%(?:: | per-step|(?=, loss = ))",
    )


_CAFFE = re.compile(r"\] Iteration " + COUNT + r"(?: \(([0-9.e+-]{1,20}) iter/s[^)]{0,60}\))?, ")
_NUMBER = re.compile(NUMBER)
_CAFFE_MAX = re.compile(r"^max_iter: " + COUNT + r"$")


class Caffe:
    """``I0714 … solver.cpp:218] Iteration 100 (12.3 iter/s, 8.1s/100 iters), loss = 0.2``."""

    def __init__(self) -> None:
        self._total: int | None = None
        self._iteration = ByShape(_caffe_places)

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line; ``max_iter`` of the solver's settings tells the total."""
        if line.startswith("max_iter"):
            match = _CAFFE_MAX.match(line)
            self._total = int(match[1]) if match else self._total
            return None
        seen = self._iteration(line, shape)
        if seen is not None:
            if "Testing net" in line:
                return Seen({})
            return Seen(seen.metrics, seen.iteration, self._total)
        # Of the same program, but not about training.
        return Seen({}) if "solver.cpp:" in line or "caffe.cpp:" in line else None


def _caffe_places(line: str) -> Places | None:
    match = _CAFFE.search(line)
    if match is None:
        return None
    numbers = numbers_in(line, match.end())
    if match[2] and (rate := _NUMBER.match(line, match.start(2))):
        numbers.append(("iter/s", *rate.span()))
    return Places({"iteration": match.span(1)}, numbers)
