"""Tables with a heading: fastai, spaCy, chainer, Vowpal Wabbit, metrics as CSV."""

import re

from headway.progress.metrics import NUMBER, Number
from headway.progress.places import Places, by_shape
from headway.progress.seen import Seen

# Python 3.11.2, which Debian 12 has, repeats a possessive group wrongly: it takes the space, too.
_CELL = re.compile(r"[^\s|,]+(?: [^\s|,]+)*")
_WORD = re.compile(r"[^\s|,]+")
_HEADING = re.compile(r"\W*(?:[A-Za-z#_%][\w./%#()@-]{0,39}[\s|,]{1,24}){1,2}")
_LEARNT = re.compile(r"(?i)(?:\w{0,20}[_ ])?(?:loss|elbo|error|acc(?:uracy)?|rewards?)")
"""What a table of two columns tells beside the count."""
_COUNTS = dict.fromkeys(
    ("#", "step", "steps", "global_step", "iter", "iteration", "counter"), "iteration"
) | dict.fromkeys(("e", "epoch"), "epoch")
_WHOLE = re.compile(r"([0-9]{1,15})(?:\.0)?")
_NUMBER = re.compile(NUMBER)
_MAX_CHARS = 1000
MAX_COLUMNS = 40


class Table:
    """Reads the rows below a heading with a column for steps or epochs."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._words: list[str] = []
        """The same where one space is enough between two."""
        self._places = by_shape(self._find)
        self._trials: list[Seen] = []

    def __call__(self, line: str, shape: str) -> Seen | None:
        """Read one line."""
        if len(line) <= _MAX_CHARS and _HEADING.match(line) and self._is_heading(line):
            return Seen({})
        places = self._places(shape) if self._columns else None
        seen = None if places is None else places.read(line)
        return self._only_trial(seen) if "status" in self._columns else seen

    def _only_trial(self, seen: Seen | None) -> Seen | None:
        """The row of a table of trials, when it is over and was the only one."""
        if seen is not None:
            self._trials = [*self._trials[-1:], seen]
            return Seen({})
        trials, self._trials = self._trials, []
        return trials[0] if len(trials) == 1 else None

    def _is_heading(self, line: str) -> bool:
        columns = _CELL.findall(line)
        if (
            _COUNTS.keys().isdisjoint(map(str.lower, columns))
            or not 2 <= len(columns) <= MAX_COLUMNS
            or (len(columns) == 2 and not any(map(_LEARNT.fullmatch, columns)))
        ):
            return False
        if columns != self._columns:
            self._columns, self._words = columns, _WORD.findall(line)
            self._places = by_shape(self._find)
        return True

    def _find(self, shape: str) -> Places | None:
        columns, cells = self._words, list(_WORD.finditer(shape, 0, _MAX_CHARS))
        if len(cells) != len(columns):
            columns, cells = self._columns, list(_CELL.finditer(shape, 0, _MAX_CHARS))
        if len(cells) != len(columns):
            return None
        counts: dict[str, slice] = {}
        numbers: list[Number] = []
        for name, cell in zip(columns, cells, strict=True):
            if field := _COUNTS.get(name.lower()):
                whole = _WHOLE.fullmatch(cell[0])
                if whole is None:
                    return None
                counts[field] = slice(cell.start(), cell.start() + whole.end(1))
            elif name != "time" and _NUMBER.fullmatch(cell[0]):
                numbers.append((name, slice(*cell.span())))
        return Places(counts, numbers) if numbers else None
