"""What scikit-learn's estimators print with ``verbose``."""

import re

from headway.progress.layout import by_patterns
from headway.progress.metrics import COUNT
from headway.progress.seen import Seen
from headway.progress.tables import Table

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
_SGD = re.compile(r"^-- Epoch " + COUNT + "$")


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
        self._lines = by_patterns(
            r"^\[%iteration%/%total%\] [0-9]{1,9} tree",
            r"^building tree %iteration% of %total%",
            r"^(?:\[t-SNE\] |\s{0,4})Iteration %iteration%(?:, (?=loss)|: (?=error))",
        )
        self._from_zero = by_patterns(r"^Iteration %iteration%, inertia", from_zero=True)
        self._norms = by_patterns(r"^Norm: ")
        self._table: Table | None = None
        self._epoch: int | None = None
        self._total: int | None = None
        self._builds_trees = False

    def __call__(self, line: str, shape: bytes) -> Seen | None:
        """Read one line."""
        seen = self._lines(line, shape) or self._from_zero(line, shape)
        if seen is not None:
            self._builds_trees = self._builds_trees or seen.total is not None
            return seen
        return self._tasks(line) or self._from_two_lines(line, shape)

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
        if line.startswith("      Iter       Train Loss"):
            self._table = Table()
        if self._table is not None and (row := self._table(line, shape)):
            return row
        if (match := _SGD.match(line)) is not None:
            self._epoch = int(match[1])
            return Seen({})
        if self._epoch is not None and (norm := self._norms(line, shape)):
            epoch, self._epoch = self._epoch, None
            return norm._replace(epoch_done=float(epoch))
        return None
