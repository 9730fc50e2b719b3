"""What one line says, before it is made a count over the whole run."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from headway.model.progress import NAN
from headway.progress.metrics import MAX_METRICS
from headway.progress.report import finite_number, is_nan

MAX_NAME = 64
MAX_COUNT = 10**15
"""A count above this is a forgery or a bug, and is not believed."""


class Counted(Enum):
    """What a line counts that are no steps."""

    EPISODES = "episodes"
    OTHERS = "others"
    """Trials, games, generations: of how many there will be a job says nothing."""


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
    counted: Counted | None = None
    """What its iterations are; None for the steps of a training, which a job calls so."""
    has_ended: bool | None = None
    """Whether the line says that the epoch it names is over."""


def finite(pairs: Iterable[tuple[str, object]]) -> dict[str, float]:
    """The pairs whose value is, or reads as, a finite number; see `NAN` for those that are NaN."""
    kept: dict[str, float] = {}
    for name, value in pairs:
        number, end = finite_number(value), ""
        if number is None and is_nan(value):
            number, end = 1.0, NAN
        if number is not None and len(kept) < MAX_METRICS:
            # JSON may spell characters that no database column takes, such as NUL.
            kept["".join(filter(str.isprintable, name[:MAX_NAME])) + end] = number
    return kept


def count(value: object) -> int | None:
    """*value* as a count that can be believed, or None."""
    number = finite_number(value)
    if isinstance(value, bool | str) or number is None or not number.is_integer():
        return None
    return int(number) if 0 <= number <= MAX_COUNT else None
