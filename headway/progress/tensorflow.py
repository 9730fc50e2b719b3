"""TensorFlow's estimators and slim, and Caffe."""

import re

from headway.progress.seen import COUNT, Seen, metrics_in

_STEP_LAST = re.compile(r"\b(?:step|global_step) = " + COUNT + r"\b(?: \(([0-9.]{1,20}) sec\))?")
_STEP_FIRST = re.compile(
    r"(?:tensorflow:|\] |: )(?:global )?[Ss]tep " + COUNT + r"(?:: | per-step|(?=, loss = ))"
)


def read_tensorflow(line: str) -> Seen | None:
    """``loss = 0.3, step = 100``, ``global step 100: loss = …``, ``Step 100 per-step …``."""
    match = _STEP_LAST.search(line)
    if match is not None:
        return Seen(metrics_in(line[: match.start()][-400:]), iteration=int(match[1]))
    match = _STEP_FIRST.search(line)
    if match is not None:
        return Seen(metrics_in(line[match.end() :]), iteration=int(match[1]))
    return None


_CAFFE = re.compile(r"\] Iteration " + COUNT + r"(?: \(([0-9.e+-]{1,20}) iter/s[^)]{0,60}\))?, ")
_CAFFE_MAX = re.compile(r"^max_iter: " + COUNT + r"$")


class Caffe:
    """``I0714 … solver.cpp:218] Iteration 100 (12.3 iter/s, 8.1s/100 iters), loss = 0.2``."""

    def __init__(self) -> None:
        self._total: int | None = None

    def __call__(self, line: str) -> Seen | None:
        """Read one line; ``max_iter`` of the solver's settings tells the total."""
        if line.startswith("max_iter"):
            match = _CAFFE_MAX.match(line)
            self._total = int(match[1]) if match else self._total
            return None
        match = _CAFFE.search(line)
        if match is None:
            # Of the same program, but not about training.
            return Seen({}) if "solver.cpp:" in line or "caffe.cpp:" in line else None
        if "Testing net" in line:
            return Seen({})
        metrics = metrics_in(line[match.end() :])
        if match[2]:
            metrics.update(metrics_in(f"iter/s={match[2]}"))
        return Seen(metrics, iteration=int(match[1]), total=self._total)
