"""How much longer than said a person's runs take, so that no claim buys a place in the queue.

What a job says of its epochs makes its estimate. What ran already of the same command, code and
data says more; and who has been wrong by some factor before is taken to be so again.
"""

import math
from collections.abc import Iterable
from statistics import median

from headway.estimate.usual import Kind, Lasted

_ENOUGH = 3
"""So many of a person's runs tell how far what is said of them comes true."""
_NEAR = 1.5
"""An estimate that is too short by no more is as good as estimates are."""


class Claims:
    """What has become of each person's estimates."""

    def __init__(self, ended: Iterable[Lasted] = ()) -> None:
        """By the newest runs that ended well, the last one to end first."""
        self._took: dict[tuple[str, ...], list[float]] = {}
        self._times: dict[tuple[str, str], list[float]] = {}
        for one in ended:
            whose = (one.kind.team, one.kind.owner)
            self._took.setdefault(_program(one.kind), []).append(one.runtime_s)
            if one.said_s:
                self._times.setdefault(whose, []).append(one.runtime_s / one.said_s)

    def times(self, kind: Kind, said_s: float) -> float:
        """How many times as long as *said_s* such a run is taken to last; never below 1."""
        if not kind.owner or said_s <= 0:
            return 1.0
        took = self._took.get(_program(kind)) if kind.program else None
        if took is not None:
            times = median(took) / said_s
        else:
            wrong = self._times.get((kind.team, kind.owner), [])
            times = median(wrong) if len(wrong) >= _ENOUGH else 1.0
        return times if _NEAR < times < math.inf else 1.0


def _program(kind: Kind) -> tuple[str, ...]:
    return (kind.team, kind.owner, kind.program, str(kind.gpus))
