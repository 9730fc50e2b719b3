"""Which of the GPUs that have room a run is given: used ones first, then those that are close."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from headway.model.node import WITHOUT_NVLINK, Gpu
from headway.policy.room import Room

_MOST_SETS = 500
"""So many sets of GPUs are compared, all that 8 GPUs have and more; else those around each GPU."""
_UNKNOWN = 1000
"""Farther than any two whose distance is known."""
_LEVELS = (
    (20, "behind the same PCIe switches"),
    (30, "at one PCIe host bridge"),
    (40, "on one NUMA node"),
)
"""By the farthest of NVML's levels."""


def choose(fitting: Iterable[tuple[int, Room]], count: int) -> list[int]:
    """The positions of *count* of the *fitting* GPUs, which are at least so many.

    Those that runs share already come first, so that one is filled before the next: the fullest,
    or where distances are known, of several the closest. Of idle ones it is the set whose GPUs are
    closest to each other, by the sum over all pairs (of very many sets, one that is nearly so);
    among equals those with the least memory, and then those far from the GPUs that stay idle:
    these remain close to each other.
    """
    order = sorted(fitting, key=lambda each: (not each[1].occupants, each[1].free_bytes, each[0]))
    if len(order) == count or not any(room.distances for _, room in order):
        return [at for at, _ in order[:count]]
    rooms = [room for _, room in order]
    used = sum(bool(room.occupants) for room in rooms)
    kept, among = ([], range(used)) if used >= count else (range(used), range(used, len(rooms)))
    apart = [[_distance(one, other) for other in rooms] for one in rooms]
    more = count - len(kept)

    def rank(taken: Sequence[int]) -> tuple[int, int, int]:
        every = (*kept, *taken)
        left = [at for at in among if at not in taken]
        return (
            sum(apart[one][other] for one, other in combinations(every, 2)),
            sum(rooms[at].free_bytes for at in taken),
            -sum(apart[one][other] for one in taken for other in left),
        )

    sets: Iterable[Sequence[int]] = combinations(among, more)
    if comb(len(among), more) > _MOST_SETS:
        sets = (sorted(among, key=lambda at: apart[seed][at])[:more] for seed in among)
    return [order[at][0] for at in (*kept, *min(sets, key=rank))]


def _distance(one: Room, other: Room) -> int:
    return 0 if one is other else one.distances.get(other.uuid, _UNKNOWN)


def closeness(gpus: Sequence[Gpu]) -> str:
    """How close *gpus* of one run are, by the two that are farthest; empty if that is not known."""
    far = [one.distances.get(other.uuid) for one, other in combinations(gpus, 2)]
    if not far or None in far:
        return ""
    known = [each for each in far if each is not None]
    if not any(known):
        return "parts of one board"
    level = max(each % WITHOUT_NVLINK for each in known)
    place = next((words for highest, words in _LEVELS if level <= highest), "across NUMA nodes")
    joined = all(each < WITHOUT_NVLINK for each in known)
    return f"{'joined by' if joined else 'without'} NVLink, {place}"
