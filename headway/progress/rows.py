"""Formats that are tables of patterns, and the one reader for all of them."""

import enum
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from headway.progress.metrics import PAIR, counts_pattern, numbers_in, spans
from headway.progress.places import Places, by_shape
from headway.progress.seen import Counted, Seen


class Tells(enum.Enum):
    """What a line that matches a row tells."""

    PROGRESS = "progress"
    """How far the training is."""
    SETTING = "setting"
    """Something that later lines of the format need."""
    HINT = "hint"
    """As a setting, but other formats have such lines too."""
    NOTHING = "nothing"
    """A line of the format that is not about progress."""


class Row(NamedTuple):
    """One kind of line of a format."""

    pattern: str
    """``%step%`` is a number, which becomes that field of `Seen`; the metrics are looked for from
    ``%rest%`` on, or in the whole line. Any other named group is a metric."""
    tells: Tells = Tells.PROGRESS
    counted: Counted | None = None
    """See `Seen`."""
    from_zero: bool = False
    """The iterations are counted from 0: the first one done is printed as 0."""
    total: int | None = None
    """The total of each such line."""
    metric: re.Pattern[str] = PAIR
    """What a metric looks like; see `numbers_in`."""
    space: str = "_"
    """What stands for a space in the names of metrics."""


class PatternReader:
    """Reads each line by the first of some rows that matches it."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.known: dict[str, Any] = {}
        """Fields of the settings and hints so far."""
        self.heard = 0
        """How many settings and hints there were."""
        self._find = by_shape(partial(_find, rows))

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        found = self._find(shape)
        if found is None:
            return None
        row, places = found
        if row.tells is Tells.NOTHING:
            return Seen({})
        seen = places.read(line)
        if row.tells is Tells.PROGRESS:
            return self._completed(row, seen)
        self.heard += 1
        self.known |= {field: getattr(seen, field) for field in places.counts}
        return Seen({}) if row.tells is Tells.SETTING else None

    def _completed(self, row: Row, seen: Seen) -> Seen | None:
        """*seen* with what settings and hints tell; None when no count is told."""
        if row.from_zero:
            seen = seen._replace(iteration=(seen.iteration or 0) + 1)
        seen = seen._replace(counted=row.counted)
        known = self.known | ({"total": row.total} if row.total else {})
        seen = seen._replace(**{k: v for k, v in known.items() if getattr(seen, k) is None})
        return seen if seen.count(None) < len(seen) - 1 else None


def _find(rows: Sequence[Row], shape: str) -> tuple[Row, Places] | None:
    for row in rows:
        if match := counts_pattern(row.pattern).search(shape):
            begin = match.start("rest") if "rest" in match.re.groupindex else 0
            numbers = numbers_in(shape, begin, pattern=row.metric, space=row.space)
            counts = spans(match)
            for name in counts.keys() - set(Seen._fields):
                numbers.append((name.replace("_per_", "/"), counts.pop(name)))
            return row, Places(counts, numbers, row.space)
    return None
