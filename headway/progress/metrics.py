"""Reading the numbers of lines that look alike, fast.

A training program prints the same line again and again with other digits. Where
its names and numbers are is found once by regular expressions, which look at
digits only as digits; the next line of that shape is just cut at those places.
"""

from collections.abc import Callable, Iterable

MAX_METRICS = 32
MAX_SHAPES = 2048
"""So many shapes are kept; then all are forgotten, and learnt again."""
MAX_SHAPE_CHARS = 1024
"""Longer texts are read anew each time, so that a hostile log fills no memory."""

Places = Callable[[str], Iterable[tuple[int, int, int, int]]]
"""Begin and end of each name, begin and end of its number."""

_SAME_DIGIT = bytes.maketrans(b"123456789", b"000000000")


def shape_of(text: str) -> bytes:
    """*text* with each digit as 0: the same for lines that differ only in their numbers."""
    return text.encode("utf-8", "surrogatepass").translate(_SAME_DIGIT)


class MetricReader:
    """Reads names and finite numbers from a text.

    Args:
        places: Where they are. It must depend on which characters are digits,
            never on which digits they are.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._shapes: dict[bytes, list[tuple[str | None, int, int, int, int]]] = {}

    def __call__(self, text: str) -> dict[str, float]:
        """At most `MAX_METRICS` metrics of *text*; of one name the last number counts."""
        shape = shape_of(text)
        plan = self._shapes.get(shape)
        if plan is None:
            plan = self._learn(text, shape)
        found: dict[str, float] = {}
        for name, name_begin, name_end, begin, end in plan:
            value = float(text[begin:end])
            if value - value == 0.0:  # finite
                found[name or text[name_begin:name_end].replace(" ", "_")] = value
        return found

    def _learn(self, text: str, shape: bytes) -> list[tuple[str | None, int, int, int, int]]:
        plan: list[tuple[str | None, int, int, int, int]] = []
        for place in self._places(text):
            name = text[place[0] : place[1]]
            # Digits are part of the name's value too: acc1 and acc5 have one shape.
            fixed = None if any(map(str.isdigit, name)) else name.replace(" ", "_")
            if fixed is not None:
                plan = [each for each in plan if each[0] != fixed]
            plan.append((fixed, *place))
            if len(plan) == MAX_METRICS:
                break
        plan.sort(key=lambda place: place[1])
        if len(text) <= MAX_SHAPE_CHARS:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = plan
        return plan
