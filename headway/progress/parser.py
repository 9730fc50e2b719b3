"""Log lines become progress points: headway's own one-line JSON protocol."""

import json
import math
from typing import Any

from headway.model.progress import ProgressPoint

_LONGEST_LINE = 65_536


class LogParser:
    """Reads a log in pieces, wherever they are cut."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._partial = b""

    def feed(self, data: bytes, t_s: float) -> list[ProgressPoint]:
        """The points that *data*, read at *t_s*, completes. Never raises."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[:_LONGEST_LINE]
        found = [_point(line, t_s) for line in lines if line.startswith(b'{"headway"')]
        return [point for point in found if point is not None]


def _point(line: bytes, t_s: float) -> ProgressPoint | None:
    try:
        said: dict[str, Any] = json.loads(line)["headway"]
        metrics = {str(k): float(v) for k, v in said.get("metrics", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return ProgressPoint(
        t_s=t_s,
        iteration=said.get("iteration"),
        epoch=said.get("epoch"),
        total=said.get("total"),
        metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
    )
