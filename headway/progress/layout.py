"""Reading lines that look alike, fast.

A training program prints the same line again and again with other digits. Where
its counts, names and numbers stand is found once by regular expressions, which look
at digits only as digits; the next line of that shape is just cut at those places.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import NamedTuple

from headway.progress.metrics import MAX_METRICS, Number, Span, pairs
from headway.progress.seen import Seen

MAX_SHAPES = 2048
"""So many shapes are kept; then all are forgotten, and learnt again."""
MAX_SHAPE_CHARS = 1024
"""Longer lines are read anew each time, so that a hostile log fills no memory."""

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

    def __init__(self, line: str, places: Places) -> None:
        self._edit = places.edit
        if places.edit is not None:
            line = places.edit(line)
        self._counts = [(name, *span) for name, span in places.counts.items() if span[0] >= 0]
        self._numbers = sorted(places.numbers, key=lambda number: number[1])[:MAX_METRICS]
        self._first = int(places.from_zero)
        self._name_of = places.name
        # Digits are part of a name's value: acc1 and acc5 have one shape.
        self._names = [
            None if self._varies(n, line) else self._name(n, line) for n in self._numbers
        ]

    def read(self, line: str) -> Seen:
        """What *line* says; of one name the last finite number counts."""
        if self._edit is not None:
            line = self._edit(line)
        metrics: dict[str, float] = {}
        for name, number in zip(self._names, self._numbers, strict=True):
            value = float(line[number[1] : number[2]])
            if isfinite(value):
                metrics[name or self._name(number, line)] = value
        said: dict[str, int | float] = {}
        for field, begin, end in self._counts:
            text = line[begin:end]
            said[field] = float(text) if field == "epoch_done" else int(text)
        if self._first:
            said["iteration"] += self._first
        return Seen(metrics, **said)  # type: ignore[arg-type]

    def _varies(self, number: Number, line: str) -> bool:
        name = number[0]
        return not isinstance(name, str) and any(map(str.isdigit, line[slice(*name)]))

    def _name(self, number: Number, line: str) -> str:
        name = number[0]
        return name if isinstance(name, str) else self._name_of(line[slice(*name)])


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


def counts_by(*patterns: str) -> Callable[[str], dict[str, Span] | None]:
    """Finds the counts in a line by the first of *patterns* that matches.

    ``%step%`` in a pattern is a group for a number, which is that field of `Seen`.
    """
    number = r"(?P<\1>[0-9]{1,15})"
    done = r"(?P<epoch_done>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
    compiled = [
        re.compile(re.sub(r"%(\w+)%", number, p.replace("%epoch_done%", done)), re.ASCII)
        for p in patterns
    ]

    def find(line: str) -> dict[str, Span] | None:
        for pattern in compiled:
            if match := pattern.search(line):
                return {name: match.span(name) for name in pattern.groupindex}
        return None

    return find


def by_patterns(
    *patterns: str,
    find: Callable[[str], Iterable[Number]] = pairs,
    from_zero: bool = False,
    name: Callable[[str], str] = underscored,
) -> ByShape:
    """Reads lines by `counts_by` *patterns*, and the metrics that *find* finds in them."""
    counts_in = counts_by(*patterns)

    def places(line: str) -> Places | None:
        counts = counts_in(line)
        if counts is None:
            return None
        return Places(counts, find(line), from_zero=from_zero, name=name)

    return ByShape(places)
