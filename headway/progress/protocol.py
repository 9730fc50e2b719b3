"""headway's own JSON line."""

import json

from headway.progress.report import finite_number
from headway.progress.seen import MAX_COUNT, Seen, count, finite

_DECODER = json.JSONDecoder()


def read_headway(line: str, _shape: str) -> Seen | None:
    """``{"headway": {"iteration": 10, "epoch": 0.5, "total": 100, "metrics": {…}}}``.

    The object may stand after a prefix that a launcher or logger added.
    """
    if '"headway"' not in line:
        return None
    start = max(line.find('{"headway"'), 0)
    said = _object(line[start:].lstrip()).get("headway")
    if not isinstance(said, dict):
        return None
    metrics, epoch = said.get("metrics"), finite_number(said.get("epoch"))
    seen = Seen(
        finite(metrics.items()) if isinstance(metrics, dict) else {},
        iteration=count(said.get("iteration")),
        total=count(said.get("total")) or None,
        epoch_done=epoch if epoch is not None and 0 <= epoch <= MAX_COUNT else None,
    )
    if seen.iteration is None and seen.total is not None:
        return seen._replace(total=None, epochs=seen.total)
    return seen


def _object(text: str) -> dict[str, object]:
    """The JSON object that *text* begins with, or an empty one."""
    try:
        value, _end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
