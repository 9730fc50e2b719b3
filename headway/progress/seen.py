"""What one line says, before it is made a count over the whole run."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headway.progress.metrics import MAX_METRICS, MetricReader

MAX_NAME = 64
MAX_COUNT = 10**15
"""A count above this is a forgery or a bug, and is not believed."""


class Seen(NamedTuple):
    """What a line of some format says, in the format's own counting."""

    metrics: dict[str, float]
    iteration: int | None = None
    """Iterations done in all."""
    total: int | None = None
    """Iterations there will be in all."""
    epoch: int | None = None
    """Number of the epoch the line is about, as printed: from 0 or from 1."""
    epochs: int | None = None
    """Number of epochs there will be, as printed."""
    step: int | None = None
    """Iterations done in this epoch."""
    steps: int | None = None
    """Iterations in an epoch."""
    epoch_done: float | None = None
    """Epochs done in all, where the line says just that."""


NUMBER = r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,5})?"
COUNT = r"([0-9]{1,15})"

# Possessive counts ({…}+) and a start at a word's start keep this linear on hostile lines.
_PAIR = re.compile(
    r"(?<![\w.@/])"
    r"((?:(?:train|training|val|valid|validation|test|eval|avg|average|lm|learning) )?"
    r"[A-Za-z_][\w./@-]{0,47}+)"
    r"[\"']?\s{0,4}+(?:[:=]\s{0,8}+[\"'\[]?(" + NUMBER + r")|(?<=\s)([-+]?[0-9]{1,20}\.[0-9]{1,20}"
    r"(?:[eE][-+]?[0-9]{1,3})?))(?![\w.]*[:/]|\.?[0-9])",
    re.ASCII,
)
_NOT_METRICS = frozenset(
    (
        *("epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "iterations", "it"),
        *("batch", "eta", "v_num", "rank", "gpu", "cuda", "total"),
        # Words before a number in a sentence.
        *("in", "after", "took", "at", "of", "for", "to", "is", "with", "by", "from", "than"),
    )
)

_SOURCES = (".py", ".cpp", ".cc", ".cu", ".h")
"""``solver.cpp:228`` is a place in a program, not a metric."""


def pairs(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Where names and numbers begin and end in *text*."""
    for match in _PAIR.finditer(text):
        name = match[1]
        if (
            name not in _NOT_METRICS
            and name.lower() not in _NOT_METRICS
            and not name.endswith(_SOURCES)
        ):
            yield *match.span(1), *match.span(2 if match[2] is not None else 3)


metrics_in = MetricReader(pairs)
"""Every ``name: number``, ``name=number`` and ``name 1.5`` in a text; finite ones only."""


def finite(pairs: Iterable[tuple[str, object]]) -> dict[str, float]:
    """The pairs whose value is, or reads as, a finite number."""
    kept: dict[str, float] = {}
    for name, value in pairs:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(number) and len(kept) < MAX_METRICS:
            # JSON may spell characters that no database column takes, such as NUL.
            known = name if len(name) <= MAX_NAME and name.isprintable() else _printable(name)
            kept[known] = number
    return kept


def _printable(name: str) -> str:
    return "".join(filter(str.isprintable, name[:MAX_NAME]))


def count(value: object) -> int | None:
    """*value* as a count that can be believed, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= MAX_COUNT else None
