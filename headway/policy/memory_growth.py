"""When a running program's memory limit is raised, and by how much.

Of memory that a job has not named, the first limit is a guess. It is raised before the program
fills it: too low a limit kills, too high a one keeps the node from others.
"""

import math

REACTION_S = 0.5
"""From a reading until the limit is raised: the pause between readings, the ledger, the engine."""
_LEAST_LEFT = 1 / 8
"""Of a limit: where less is left, it is raised however slowly the program grows."""
_FACTOR = 1.5
_LOOK_AHEAD_S = 1.0
_FASTEST_BYTES_PER_S = 4 << 30
"""Page faults of one process fill no more on common machines."""
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.05, 1.0


def grown_limit(limit_bytes: int, used_bytes: int, bytes_per_s: float) -> int | None:
    """The limit that a program should have now, in bytes; None while its own will do.

    Half as much again, so that few steps lead to any size; more where it grows faster than that.

    Args:
        limit_bytes: That it has.
        used_bytes: Of it, without what the kernel can take back.
        bytes_per_s: By how much its use grows.
    """
    left_bytes = limit_bytes - used_bytes
    if left_bytes > max(limit_bytes * _LEAST_LEFT, bytes_per_s * REACTION_S):
        return None
    return math.ceil(max(limit_bytes * _FACTOR, used_bytes + bytes_per_s * _LOOK_AHEAD_S))


def pause_s(limit_bytes: int, used_bytes: int) -> float:
    """How long nobody has to look at it: the fastest program fills half of what is left then."""
    left_s = (limit_bytes - used_bytes) / 2 / _FASTEST_BYTES_PER_S
    return min(max(left_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)
