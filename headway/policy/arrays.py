"""Arrays: whether a member may start beside the others, and when the last one may end."""

import heapq
from collections.abc import Sequence

from headway.model.lease import Resource, Wait


def full_wait(running: int, at_most: int) -> Wait | None:
    """Why no more members of an array may start while *running* of them run; None if they may."""
    if running < at_most:
        return None
    return Wait(Resource.TURN, f"its array runs {at_most} at a time, and {running} of it run")


def last_end_s(free_in_s: Sequence[float], members: int, lasts_s: float) -> float:
    """In how many seconds the last member ends, if those that are left follow in the same places.

    Args:
        free_in_s: For each place that members have now, in how many seconds it is free again; at
            least one.
        members: How many have not started yet.
        lasts_s: How long each of them is expected to run.
    """
    places = list(free_in_s)
    heapq.heapify(places)
    for _ in range(members):
        heapq.heapreplace(places, places[0] + lasts_s)
    return max(places)
