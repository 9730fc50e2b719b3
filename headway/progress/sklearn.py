"""What scikit-learn's estimators print with ``verbose``."""

import re

from headway.progress.layout import ByShape, Places
from headway.progress.metrics import COUNT, NUMBER, numbers_in
from headway.progress.seen import Seen

_HISTOGRAM = re.compile(r"^\[" + COUNT + "/" + COUNT + r"\] [0-9]{1,9} tree")
_ITERATION = re.compile(
    r"^(?:\[t-SNE\] |\s{0,4})Iteration " + COUNT + r"(?:, (?=loss|inertia)|: (?=error))"
)
_MANY = re.compile(
    r"^\[Parallel\(n_jobs=[^)]{1,40}\)\]: Done\s{1,6}"
    + COUNT
    + r" (?:tasks|out of\s{1,6}"
    + COUNT
    + ")"
)
_FITS = re.compile(
    r"^Fitting [0-9]{1,9} folds? for each of [0-9]{1,9} candidates?, totalling " + COUNT + " fits"
)
_TREE = re.compile(r"^building tree " + COUNT + " of " + COUNT)
_SGD = re.compile(r"^-- Epoch " + COUNT + "$")
_ROW = re.compile(
    r"^\s{1,12}"
    + COUNT
    + r"((?:\s{1,20}"
    + NUMBER
    + r"(?=\s)){1,3}+)(?:\s{1,20}[0-9.]{1,12}[smh])?\s{0,4}$"
)
_HEADER = re.compile(r"^\s{2,12}Iter\s{2,12}Train Loss")
_VALUE = re.compile(r"\S+")
_INERTIA = re.compile(r"inertia (" + NUMBER + ")")


class ScikitLearn:
    """MLP, SGD, gradient boosting (both), forests, k-means, t-SNE, joblib's tasks."""

    hints = (
        "Iteration ",
        "[Parallel",
        "Fitting ",
        "building tree",
        "-- Epoch",
        "Train Loss",
        " tree",
    )

    def __init__(self) -> None:
        self._columns: tuple[str, ...] = ()
        self._rows = ByShape(self._places)
        self._epoch: int | None = None
        self._total: int | None = None
        self._norms = ByShape(lambda line: Places({}, numbers_in(line, 0)))
        self._builds_trees = False

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        seen = self._rows(line, shape)
        if seen is not None:
            self._builds_trees = self._builds_trees or seen.total is not None
            return seen
        return self._tasks(line) or self._from_two_lines(line, shape)

    def _places(self, line: str) -> Places | None:
        """What stands where in a line that tells an iteration by itself."""
        if self._columns and (match := _ROW.match(line)):
            values = _VALUE.finditer(line, *match.span(2))
            columns = zip(self._columns, values, strict=False)
            numbers = [(column, *value.span()) for column, value in columns]
            return Places({"iteration": match.span(1)}, numbers)
        if (match := _ITERATION.match(line)) is not None:
            at = {"iteration": match.span(1)}
            if inertia := _INERTIA.match(line, match.end()):
                # k-means counts from 0, the others from 1.
                return Places(at, [("inertia", *inertia.span(1))], from_zero=True)
            return Places(at, numbers_in(line, match.end()))
        match = _HISTOGRAM.match(line) or _TREE.match(line)
        if match is None:
            return None
        at = {"iteration": match.span(1), "total": match.span(2)}
        return Places(at, numbers_in(line, match.end()))

    def _tasks(self, line: str) -> Seen | None:
        """Joblib's tasks, which are the progress where nothing finer is said."""
        if (match := _FITS.match(line)) is not None:
            self._total = int(match[1])
            return Seen({})
        match = _MANY.match(line)
        if match is None or self._builds_trees:
            return None
        done, total = int(match[1]), int(match[2]) if match[2] else self._total
        # "Done 1 out of 1" is said of the tasks dispatched so far.
        return Seen({}, iteration=done, total=self._total or (total if done > 1 else None))

    def _from_two_lines(self, line: str, shape: bytes) -> Seen | None:
        """Formats that need the line before: the boosting table and SGD."""
        if _HEADER.match(line):
            self._rows.forget()
            self._columns = ("Train Loss", *(("OOB Improve",) if "OOB" in line else ()))
            return Seen({})
        if (match := _SGD.match(line)) is not None:
            self._epoch = int(match[1])
            return Seen({})
        if self._epoch is not None and line.startswith("Norm: "):
            epoch, self._epoch = self._epoch, None
            norm = self._norms(line, shape)
            return None if norm is None else norm._replace(epoch_done=float(epoch))
        return None
