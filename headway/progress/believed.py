"""Whether a total that a log tells is how many there will be in the run.

One that was passed or raised is none: a limit that is no end, a queue that fills. A count that
begins again is one of several fits, folds or phases, and nobody knows how many will come.
"""

SURELY_LAST = 3.0
"""A count that began again is taken for the last one when it has lasted so many times all before
it: those were a download, or a warm-up."""


class BelievedTotals:
    """Remembers what totals a log told, and in which of its counts."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._is_open = False
        self._first_s: float | None = None
        self._again_s: float | None = None

    @property
    def are_told(self) -> bool:
        """Whether the log told one itself."""
        return bool(self._first)

    def tell(self, what: str, total: int) -> None:
        """Of *what* there will be *total*, as a line says."""
        self._is_open |= total > self._first.setdefault(what, total)

    def begin_again(self, t_s: float) -> None:
        """At *t_s* the count went back to its beginning."""
        self._first, self._is_open, self._again_s = {}, False, t_s

    def believed(self, total: int | None, done: float, t_s: float) -> int | None:
        """*total*, where that is how many there will be and *done* are done; else None."""
        self._first_s = t_s if self._first_s is None else self._first_s
        self._is_open |= total is not None and done > total
        is_part = self._again_s is not None and not (
            t_s - self._again_s > SURELY_LAST * (self._again_s - self._first_s)
        )
        return None if self._is_open or is_part else total
