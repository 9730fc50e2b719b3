"""Reading lines that look alike, fast.

A training program prints the same line again and again with other digits. Where
its counts, names and numbers stand is found once by regular expressions, which look
at digits only as digits; the next line of that shape is just cut at those places.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from operator import itemgetter
from typing import NamedTuple

from headway.progress.metrics import MAX_METRICS, Number, Span
from headway.progress.seen import Seen

MAX_SHAPES = 2048
"""So many shapes are kept; then all are forgotten, and learnt again."""
MAX_SHAPE_CHARS = 1024
"""Longer lines are read anew each time, so that a hostile log fills no memory."""
MAX_NAMES = 64
"""So many spellings of names with digits are kept for one shape."""

_SAME_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_FIELDS = {name: index for index, name in enumerate(Seen._fields)}
_EPOCH_DONE = _FIELDS["epoch_done"]


def shapes_of(lines: list[str]) -> list[bytes]:
    """Each line with each digit as 0: the same for lines that differ only in their numbers."""
    if not lines:
        return []
    block = "\n".join(lines).encode("utf-8", "surrogatepass")
    return block.translate(_SAME_DIGIT).split(b"\n")


def shape_of(text: str) -> bytes:
    """*text* with each digit as 0."""
    return text.encode("utf-8", "surrogatepass").translate(_SAME_DIGIT)


def underscored(name: str) -> str:
    """The name of a metric as it is kept: without spaces."""
    return name.replace(" ", "_")


class Places(NamedTuple):
    """What stands where in lines of one shape."""

    counts: Mapping[str, Span]
    """Fields of `Seen` that hold a count; a span before the line's begin stands for none."""
    numbers: Iterable[Number] = ()
    from_zero: bool = False
    """The iteration is counted from 0: the first one done is printed as 0."""
    edit: Callable[[str], str] | None = None
    """What is done to the line before; the places are those of the result."""
    name: Callable[[str], str] = underscored
    """What is done to the names of metrics."""


Find = Callable[[str], Places | None]
"""Finds the places in a line, or None where it says nothing. The answer must depend on
which characters are digits, never on which digits they are."""


class Layout:
    """Reads lines of the one shape whose places it was given."""

    __slots__ = (
        "_clean",
        "_count_at",
        "_done_at",
        "_edit",
        "_fields",
        "_fixed",
        "_name_at",
        "_names",
        "_number_at",
        "_plus",
    )

    def __init__(self, line: str, places: Places) -> None:
        self._edit = places.edit
        if places.edit is not None:
            line = places.edit(line)
        counts = {_FIELDS[name]: span for name, span in places.counts.items() if span[0] >= 0}
        done = counts.pop(_EPOCH_DONE, None)
        self._done_at = None if done is None else slice(*done)
        self._fields = tuple(counts)
        self._count_at = _cut(list(counts.values()))
        self._plus = int(places.from_zero)
        numbers = sorted(places.numbers, key=lambda number: number[1])[:MAX_METRICS]
        self._number_at = _cut([number[1:] for number in numbers])
        self._clean = places.name
        self._fixed = tuple(
            name if isinstance(name, str) else places.name(line[name[0] : name[1]])
            for name, _begin, _end in numbers
        )
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        # Digits are part of the name's value too: acc1 and acc5 have one shape.
        spans = [n for n, _begin, _end in numbers if not isinstance(n, str)]
        varies = len(spans) == len(numbers) and any(map(_has_digit, self._fixed))
        self._name_at = _cut(spans) if varies else None

    def read(self, line: str) -> list[object]:
        """The fields of `Seen` that *line* tells, in their order."""
        if self._edit is not None:
            line = self._edit(line)
        row: list[object] = [self.metrics(line), None, None, None, None, None, None, None]
        if self._count_at is not None:
            for field, text in zip(self._fields, self._count_at(line), strict=False):
                row[field] = int(text)
            if self._plus:
                row[1] = int(self._count_at(line)[0]) + 1
        if self._done_at is not None:
            row[_EPOCH_DONE] = float(line[self._done_at])
        return row

    def metrics(self, line: str) -> dict[str, float]:
        """The finite numbers of *line*; of one name the last number counts."""
        if self._number_at is None:
            return {}
        names = self._fixed if self._name_at is None else self._spelled(line)
        found = dict(zip(names, map(float, self._number_at(line)), strict=False))
        if not isfinite(sum(found.values())):
            every = zip(names, map(float, self._number_at(line)), strict=False)
            found = {name: value for name, value in every if isfinite(value)}
        return found

    def _spelled(self, line: str) -> tuple[str, ...]:
        """Names with the digits they have in *line*."""
        raw = self._name_at(line) if self._name_at is not None else ()
        names = self._names.get(raw)
        if names is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            names = self._names[raw] = tuple(map(self._clean, raw))
        return names


def _cut(spans: list[Span]) -> Callable[[str], tuple[str, ...]] | None:
    """What cuts *spans* out of a line. The last comes twice: `itemgetter` of one gives no tuple."""
    return itemgetter(*(slice(*span) for span in [*spans, spans[-1]])) if spans else None


def _has_digit(name: str) -> bool:
    return any(map(str.isdigit, name))


class ByShape:
    """Reads lines by the places that *find* finds in the first one of each shape."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._layouts: dict[bytes, Layout | None] = {}

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line.

        Args:
            line: The line.
            shape: What lines of this shape have in common and others have not:
                `shape_of` this line, or of a longer one that it was cut from.
        """
        layout = self.layout(line, shape)
        return None if layout is None else Seen._make(layout.read(line))

    def layout(self, line: str, shape: bytes) -> Layout | None:
        """How lines like *line* are read; None where they say nothing."""
        try:
            return self._layouts[shape]
        except KeyError:
            return self._learn(line, shape)

    def forget(self) -> None:
        """Look anew at each shape, since what *find* knows has changed."""
        self._layouts.clear()

    def _learn(self, line: str, shape: bytes) -> Layout | None:
        places = self._find(line)
        layout = None if places is None else Layout(line, places)
        if len(shape) <= MAX_SHAPE_CHARS:
            if len(self._layouts) >= MAX_SHAPES:
                self._layouts.clear()
            self._layouts[shape] = layout
        return layout
