"""A job's own regular expression, run by an engine that needs linear time only."""

from headway.errors import InvalidInput
from headway.model.pattern import COUNT_GROUPS, compile_pattern
from headway.progress.metrics import MAX_METRICS
from headway.progress.report import finite_number
from headway.progress.seen import Seen, count, finite


class CustomPattern:
    """Reads lines by a pattern with named groups.

    ``iteration`` and ``total`` count the run, or the epoch where the pattern
    has ``epoch`` too and the counts begin again with it; ``epochs`` is how
    many there will be; every other named group is a metric.

    Raises:
        InvalidInput: The pattern is no RE2 expression (look-around and
            back-references are none), is too large, or has neither an
            ``iteration`` nor an ``epoch`` group.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = compile_pattern(pattern)
        except ValueError as error:
            raise InvalidInput("progress", pattern, str(error)) from error
        names = self._pattern.groupindex
        self._metrics = tuple(name for name in names if name not in COUNT_GROUPS)[:MAX_METRICS]

    def __call__(self, line: str, _shape: str) -> Seen | None:
        """Read one line."""
        match = self._pattern.search(line)
        if match is None:
            return None
        said = match.groupdict()
        metrics = finite((name, said[name]) for name in self._metrics if said[name])
        iteration, epoch, total, epochs = (_count(said.get(name)) for name in COUNT_GROUPS)
        if epoch is None:
            done = finite_number(said.get("epoch"))
            return Seen(metrics, iteration=iteration, total=total or None, epoch_done=done)
        if iteration is None:
            return Seen(metrics, epoch=epoch, epochs=epochs or total or None)
        return Seen(metrics, epoch=epoch, epochs=epochs, step=iteration, steps=total or None)


def _count(text: str | None) -> int | None:
    """*text* as a count; None when it is none, or one that cannot be believed."""
    return count(float(text)) if text and text.isascii() and text.isdigit() else None
