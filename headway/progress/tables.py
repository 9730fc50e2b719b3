"""Tables with a heading: fastai, spaCy, chainer, tf_cnn_benchmarks, metrics as CSV."""

import re

from headway.progress.layout import ByShape, Places
from headway.progress.metrics import NUMBER, Span
from headway.progress.seen import Seen

_CELL = re.compile(r"[^\s|,]++(?: [^\s|,]++)*+")
_HEADING = re.compile(r"\W*(?:[A-Za-z#_%][\w./%#()@-]{0,39}[\s|,]{1,24}){2}")
_ITERATION = frozenset(("#", "step", "steps", "global_step", "iter", "iteration"))
_EPOCH = frozenset(("e", "epoch"))
_NUMBER = re.compile(NUMBER)
_MAX_CHARS = 1000
MAX_COLUMNS = 40


class Table:
    """Reads the rows below a heading with a column for steps or epochs."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._rows = ByShape(self._places)
        self._are_trials = False
        self._trials: list[Seen] = []

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        if len(line) <= _MAX_CHARS and _HEADING.match(line) and self._is_heading(line):
            return Seen({})
        seen = self._rows(line, shape) if self._columns else None
        return self._only_trial(seen) if self._are_trials else seen

    def _only_trial(self, seen: Seen | None) -> Seen | None:
        """The row of a table of trials, when it is over and was the only one."""
        if seen is not None:
            self._trials = [*self._trials[-1:], seen]
            return Seen({})
        trials, self._trials = self._trials, []
        return trials[0] if len(trials) == 1 else None

    def _is_heading(self, line: str) -> bool:
        columns = [line[slice(*cell)] for cell in _cells(line)]
        counts = [name for name in columns if name.lower() in _ITERATION | _EPOCH]
        if not counts or not 3 <= len(columns) <= MAX_COLUMNS:
            return False
        if columns != self._columns:
            self._rows.forget()
            self._columns, self._are_trials = columns, "status" in columns
        return True

    def _places(self, line: str) -> Places | None:
        cells = _cells(line[:_MAX_CHARS])
        if len(cells) != len(self._columns):
            return None
        counts: dict[str, Span] = {}
        numbers = []
        for name, (begin, end) in zip(self._columns, cells, strict=True):
            iterates = name.lower() in _ITERATION
            if iterates or name.lower() in _EPOCH:
                whole = re.match(r"[0-9]{1,15}(?=(?:\.0)?$)", line[begin:end])
                if whole is None:
                    return None
                counts["iteration" if iterates else "epoch"] = (
                    begin,
                    begin + whole.end(),
                )
            elif name != "time" and _NUMBER.fullmatch(line, begin, end):
                numbers.append((name, begin, end))
        return Places(counts, numbers) if numbers else None


def _cells(line: str) -> list[Span]:
    return [match.span() for match in _CELL.finditer(line)]
