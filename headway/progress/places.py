"""Where the counts and the metrics of a line stand, found once for lines that look alike.

A training program prints the same line again and again with other digits. Regular expressions
read the line with each digit as 0, its shape; the next line of the same shape is cut at the
same places.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite, isnan
from typing import NamedTuple, TypeVar

from headway.model.progress import NAN
from headway.progress.metrics import MAX_METRICS, Number
from headway.progress.seen import Seen

MAX_SHAPES = 2048
"""So many shapes are remembered by one reader."""
MAX_SHAPE_CHARS = 1024
"""Patterns read so much of a line, so that a hostile log fills no memory."""

Reader = Callable[[str, str], Seen | None]
"""Reads a line, given with its shape; may remember what it needs for the next; never raises.

An empty `Seen` means: a line of this format, which tells no progress."""

Found = TypeVar("Found")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")


def shape_of(line: str) -> str:
    """The beginning of *line* with each digit as 0."""
    return line[:MAX_SHAPE_CHARS].encode().translate(_ZEROS).decode()


def by_shape(find: Callable[[str], Found]) -> Callable[[str], Found]:
    """As *find*, which is given a shape, but it is asked only once for each of the newest."""
    return lru_cache(MAX_SHAPES)(find)


class Places(NamedTuple):
    """Where the counts and the metrics stand in lines of one shape."""

    counts: dict[str, slice]
    """Fields of `Seen` that the lines tell."""
    numbers: Sequence[Number] = ()
    space: str = "_"
    """What stands for a space in the names of metrics."""

    def read(self, line: str) -> Seen:
        """What *line* tells; of one name the last finite number counts."""
        metrics: dict[str, float] = {}
        for name, at in self.numbers[:MAX_METRICS]:
            value = float(line[at])
            known = name if isinstance(name, str) else line[name].replace(" ", self.space)
            if isfinite(value):
                metrics[known] = value
            elif isnan(value):
                metrics[known + NAN] = 1.0
        said: dict[str, int | float] = {}
        for field, at in self.counts.items():
            said[field] = float(line[at]) if field == "epoch_done" else int(line[at])
        return Seen(metrics, **said)  # type: ignore[arg-type]
