"""The board: the nodes of a pool with what is in each, as one decision sees them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.model.lease import Lease
from headway.policy.closeness import choose
from headway.policy.fit import Ask, Headroom
from headway.policy.room import Occupant, Reservation, Room


class Place(NamedTuple):
    """GPUs of one node, by their positions on the board."""

    node: int
    gpus: tuple[int, ...]


@dataclass(slots=True)
class Board:
    """The nodes of a pool."""

    nodes: list[Headroom]

    def copy(self) -> "Board":
        """The same board, to try something out."""
        return Board([node.copy() for node in self.nodes])

    def enter(self, ask: Ask, places: Sequence[Place], now_s: float) -> None:
        """Let the run of *ask* in at *places*."""
        end_s = now_s + ask.high_s
        for place in places:
            node = self.nodes[place.node]
            for room, need in node.rooms_for(ask, place.gpus):
                room.enter(Occupant(end_s, ask.run_id, now_s, end_s, need))
            node.disk_bytes -= ask.disk_bytes

    def leave(self, ask: Ask, places: Sequence[Place]) -> None:
        """Take the run of *ask* off the board."""
        for place in places:
            node = self.nodes[place.node]
            for room, _ in node.rooms_for(ask, place.gpus):
                room.leave(ask.run_id)
            node.disk_bytes += ask.disk_bytes

    def refresh(self, now_s: float, overrun_frac: float) -> None:
        """Forget all reservations; expect those who outlived their prediction to go on a while."""
        for node in self.nodes:
            for room in node.rooms:
                if room.reservations:
                    room.reservations.clear()
                if any(one.predicted_end_s <= now_s for one in room.occupants):
                    room.outlived(now_s, overrun_frac)

    def reserve(self, ask: Ask, places: Sequence[Place], start_s: float) -> None:
        """Hold *places* back for *ask* from *start_s* for its predicted time."""
        end_s = start_s + ask.high_s
        for place in places:
            for room, need in self.nodes[place.node].rooms_for(ask, place.gpus):
                room.reservations.append(Reservation(start_s, end_s, need))

    def place_of(self, node: int, lease: Lease) -> Place:
        """Where *lease* of that node is, by the GPUs that can be read now."""
        uuids = {grant.uuid for grant in lease.gpus}
        return Place(
            node, tuple(at for at, gpu in enumerate(self.nodes[node].gpus) if gpu.uuid in uuids)
        )

    def has_room(self, ask: Ask) -> bool:
        """Would *ask* fit now if there were no reservations?"""
        return sum(node.fits(ask) for node in self.nodes) >= ask.nodes

    def place_now(self, ask: Ask, now_s: float) -> tuple[Place, ...]:
        """Where *ask* may start now without delaying a reservation; empty when nowhere.

        Best fit: beside others on the GPU that is left with the least memory,
        else on the node with the fewest empty GPUs, so that whole nodes stay
        free for those who need them. First of all the node that has its checkpoint.
        """
        end_s = now_s + ask.high_s
        found: list[tuple[tuple[float, ...], int]] = []
        fitting: dict[int, Sequence[tuple[int, Room]]] = {}
        for at, node in enumerate(self.nodes):
            if not node.fits(ask):
                continue
            if not all(r.fits_during(need, now_s, end_s) for r, need in node.rooms_for(ask, ())):
                continue
            fitting[at] = _fitting(node, ask, now_s, end_s)
            if len(fitting[at]) >= ask.gpus:
                found.append((_score(node, fitting[at], ask.gpus), at))
        if len(found) < ask.nodes:
            return ()
        best = sorted(found, key=lambda each: (self.nodes[each[1]].name != ask.home, each))
        return tuple(
            Place(at, tuple(sorted(choose(fitting[at], ask.gpus)))) for _, at in best[: ask.nodes]
        )

    def earliest(self, ask: Ask, now_s: float) -> tuple[float, tuple[Place, ...]]:
        """The earliest start of *ask* by predicted ends, all reservations kept; infinite if none.

        Looked for where a GPU opens or a reservation ends: there is no start
        between these. The search is bounded by the size of the board.
        """
        opens = [self._opens(node, ask, now_s) for node in self.nodes]
        if ask.nodes > 1:
            return self._earliest_gang(ask, opens)
        best: tuple[float, tuple[Place, ...]] = (math.inf, ())
        for at, times in enumerate(opens):
            for start_s in times:
                if start_s >= best[0]:
                    break
                gpus = _free_during(self.nodes[at], ask, start_s)
                if gpus is not None:
                    best = (start_s, (Place(at, gpus),))
                    break
        return best

    def _earliest_gang(
        self, ask: Ask, opens: Sequence[Sequence[float]]
    ) -> tuple[float, tuple[Place, ...]]:
        for start_s in sorted({time_s for times in opens for time_s in times}):
            places: list[Place] = []
            for at, times in enumerate(opens):
                if times and times[0] <= start_s:
                    gpus = _free_during(self.nodes[at], ask, start_s)
                    if gpus is not None:
                        places.append(Place(at, gpus))
            if len(places) >= ask.nodes:
                return start_s, tuple(places[: ask.nodes])
        return math.inf, ()

    def _opens(self, node: Headroom, ask: Ask, now_s: float) -> list[float]:
        """Times at which *ask* may come to fit on *node*, soonest first."""
        if not node.admits(ask):
            return []
        host_s = max(
            (r.opens_at(need, now_s) for r, need in node.rooms_for(ask, ())), default=now_s
        )
        times = sorted(room.opens_at(ask.gpu, now_s) for _, room in node.suitable(ask))
        if ask.gpus:
            if len(times) < ask.gpus:
                return []
            least_s = max(times[ask.gpus - 1], host_s)
        else:
            least_s = host_s
        if least_s == math.inf:
            return []
        ends = {p.end_s for room in node.rooms for p in room.reservations}
        later = {time_s for time_s in (*times, *ends) if least_s < time_s < math.inf}
        return [least_s, *sorted(later)]


def _fitting(node: Headroom, ask: Ask, now_s: float, end_s: float) -> Sequence[tuple[int, Room]]:
    """The GPUs of *node* that *ask* may have now, each with its position."""
    if ask.gpus == 0:
        return ()
    need = ask.gpu
    return [
        (at, room)
        for at, room in node.suitable(ask)
        if room.fits_now(need) and (not room.reservations or room.fits_during(need, now_s, end_s))
    ]


def _score(node: Headroom, fitting: Sequence[tuple[int, Room]], gpus: int) -> tuple[float, ...]:
    """How well *gpus* of the *fitting* ones suit (smallest is best), wherever they are."""
    if gpus == 0:
        return (node.host.free_bytes,)
    order = sorted((not room.occupants, room.free_bytes) for _, room in fitting)
    alone, free_bytes = order[gpus - 1]
    if alone:
        return (1, free_bytes, sum(not room.occupants for room in node.gpus))
    return (0, free_bytes)


def _free_during(node: Headroom, ask: Ask, start_s: float) -> tuple[int, ...] | None:
    """GPUs of *node* that can be promised from *start_s*; None when there are too few.

    Those that open last are taken, so that the ones that open sooner stay of use.
    """
    end_s = start_s + ask.high_s
    if not all(r.fits_during(need, start_s, end_s) for r, need in node.rooms_for(ask, ())):
        return None
    gpus = [
        (room.occupants[-1].end_s if room.occupants else -math.inf, at)
        for at, room in node.suitable(ask)
        if room.fits_during(ask.gpu, start_s, end_s)
    ]
    if len(gpus) < ask.gpus:
        return None
    gpus.sort()
    return tuple(sorted(at for _, at in gpus[len(gpus) - ask.gpus :]))
