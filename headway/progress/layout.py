"""Reading lines that look alike, fast.

A training program prints the same line again and again with other digits. Where
its counts, names and numbers stand is found once by regular expressions, which look
at digits only as digits; the next line of that shape is just cut at those places.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from operator import itemgetter
from typing import NamedTuple

import orjson

from headway.progress.metrics import MAX_METRICS, Number, Span
from headway.progress.seen import Seen

MAX_SHAPES = 2048
"""So many shapes are kept; then all are forgotten, and learnt again."""
MAX_SHAPE_CHARS = 1024
"""Longer lines are read anew each time, so that a hostile log fills no memory."""
MAX_NAMES = 64
"""So many spellings of names with digits are kept for one shape."""

_SAME_DIGIT = bytes.maketrans(b"123456789", b"000000000")


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
        "_as_whole",
        "_cut",
        "_edit",
        "_first",
        "_is_padded",
        "_name_of",
        "_names",
        "_names_cut",
        "_order",
        "_spelled",
        "_varying",
        "_whole",
    )

    def __init__(self, line: str, places: Places) -> None:
        self._edit = places.edit
        if places.edit is not None:
            line = places.edit(line)
        counts = {name: span for name, span in places.counts.items() if span[0] >= 0}
        done = counts.pop("epoch_done", None)
        numbers = _last_of_each(line, places.numbers)
        spans = [number[1:] for number in numbers] + ([] if done is None else [done])
        # First whole numbers, then others, of which the last may be the epochs done.
        self._whole = len(counts)
        self._cut = _cutter([*counts.values(), *spans])
        self._first = int(places.from_zero)
        # Printed as whole numbers, or as JSON may read them: 5 and 1e5.
        self._as_whole = tuple(
            i for i, at in enumerate(spans, self._whole) if "." not in line[slice(*at)]
        )
        self._is_padded = False
        # Where each field of `Seen` stands among None, the metrics and all these.
        at = {"metrics": 1} | {name: index for index, name in enumerate(counts, 2)}
        if done is not None:
            at["epoch_done"] = 1 + len(counts) + len(spans)
        self._order = itemgetter(*(at.get(field, 0) for field in Seen._fields))
        self._name_of = places.name
        self._names = tuple(
            name if isinstance(name, str) else places.name(line[slice(*name)])
            for name, _begin, _end in numbers
        )
        # Digits are part of the name's value too: acc1 and acc5 have one shape.
        in_line = [(i, number[0]) for i, number in enumerate(numbers) if _has_digit(self._names[i])]
        varying = {i: name for i, name in in_line if not isinstance(name, str)}
        self._varying = tuple(varying)
        self._names_cut = _cutter(list(varying.values())) if varying else None
        self._spelled: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self, line: str) -> Seen:
        """What *line* says; of one name the last finite number counts."""
        if self._edit is not None:
            line = self._edit(line)
        cut, whole = self._cut(line), self._whole
        try:
            # One call for all numbers takes a fifth of the time of int() and float().
            if self._is_padded:
                values = [*map(int, cut[:whole]), *orjson.loads(f"[{','.join(cut[whole:])}]")]
            else:
                values = orjson.loads(f"[{','.join(cut)}]")
        except orjson.JSONDecodeError:
            # Not as JSON has them: 007, .5, or too large for a float.
            self._is_padded = True
            values = [*map(int, cut[:whole]), *map(float, cut[whole:])]
        for index in self._as_whole:
            values[index] = float(values[index])
        others = values[whole:] if whole else values
        names = self._names if self._names_cut is None else self._as_spelled(self._names_cut(line))
        # Behind the metrics there may be the epochs done. (strict=False would cost 0.15 us.)
        metrics = dict(zip(names, others))  # noqa: B905
        if self._is_padded and not isfinite(sum(others)):
            metrics = {n: v for n, v in zip(names, others, strict=False) if isfinite(v)}
        if self._first:
            values[0] += self._first
        # As Seen._make, which is one more call.
        return tuple.__new__(Seen, self._order([None, metrics, *values]))

    def _as_spelled(self, raw: tuple[str, ...]) -> tuple[str, ...]:
        """Names with the digits they have in this line."""
        names = self._spelled.get(raw)
        if names is None:
            if len(self._spelled) >= MAX_NAMES:
                self._spelled.clear()
            spelled = list(self._names)
            for index, name in zip(self._varying, raw, strict=True):
                spelled[index] = self._name_of(name)
            names = self._spelled[raw] = tuple(spelled)
        return names


def _cutter(spans: list[Span]) -> Callable[[str], tuple[str, ...]]:
    """What cuts *spans* out of a line."""
    slices = [slice(*span) for span in spans]
    if len(slices) > 1:
        return itemgetter(*slices)
    # `itemgetter` of one gives no tuple.
    return (lambda line: (line[slices[0]],)) if slices else (lambda _line: ())


def _last_of_each(line: str, numbers: Iterable[Number]) -> list[Number]:
    """*numbers* without those that a later one of the same name replaces, in their order."""
    last: dict[Span | str, Number] = {}
    for number in sorted(numbers, key=lambda number: number[1]):
        name = number[0]
        # With digits, names that are equal in this line need not be so in the next.
        text = name if isinstance(name, str) else line[slice(*name)]
        key = name if _has_digit(text) else text
        last.pop(key, None)
        last[key] = number
    return list(last.values())[:MAX_METRICS]


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
        return None if layout is None else layout.read(line)

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
