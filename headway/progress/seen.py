"""What one line says, before it is made a count over the whole run."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from headway.progress.metrics import MAX_METRICS

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


def finite(pairs: Iterable[tuple[str, object]]) -> dict[str, float]:
    """The pairs whose value is, or reads as, a finite number."""
    kept: dict[str, float] = {}
    for name, value in pairs:
        number = value if type(value) is float else _number(value)
        if math.isfinite(number) and len(kept) < MAX_METRICS:
            # JSON may spell characters that no database column takes, such as NUL.
            known = name if len(name) <= MAX_NAME and name.isprintable() else _printable(name)
            kept[known] = number
    return kept


def _number(value: object) -> float:
    """What *value* is, or reads as; NaN when that is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _printable(name: str) -> str:
    return "".join(filter(str.isprintable, name[:MAX_NAME]))


def count(value: object) -> int | None:
    """*value* as a count that can be believed, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= MAX_COUNT else None
