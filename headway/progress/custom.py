"""A job's own regular expression, run by an engine that needs linear time only."""

from headway.errors import InvalidInput
from headway.model.pattern import COUNT_GROUPS, compile_pattern
from headway.progress.metrics import MAX_METRICS
from headway.progress.seen import MAX_COUNT, Seen, finite


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

    def __call__(self, line: str, _shape: bytes) -> Seen | None:
        """Read one line."""
        match = self._pattern.search(line)
        if match is None:
            return None
        said = match.groupdict()
        metrics = finite((name, said[name]) for name in self._metrics if said[name])
        counts = {name: _count(said.get(name)) for name in COUNT_GROUPS}
        iteration, total = counts["iteration"], counts["total"] or None
        if counts["epoch"] is None:
            epoch = said.get("epoch")
            done = finite([("epoch", epoch)]).get("epoch") if epoch else None
            return Seen(metrics, iteration=iteration, total=total, epoch_done=done)
        if iteration is None:
            return Seen(metrics, epoch=counts["epoch"], epochs=counts["epochs"] or total)
        return Seen(metrics, None, None, counts["epoch"], counts["epochs"], iteration, total)


def _count(text: str | None) -> int | None:
    """*text* as a count; None when it is none, or one that cannot be believed."""
    if not text or not (text.isascii() and text.isdigit()) or len(text) > len(str(MAX_COUNT)):
        return None
    return int(text)
