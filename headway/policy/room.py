"""Rooms: what a GPU or a host still has, now and at the times that runs are predicted to end.

A `Room` is one thing that several runs may use at once: a GPU (memory and
utilisation), the host of a node (memory and CPUs) or its ports (their number).
It knows who is in it, until when by the upper quantile of their ends, and what
is promised to reservations. Times are seconds on any one clock; the callers agree on it.
"""

import math
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

ROUNDING = 1e-9
"""Sums of fractions such as 0.1 + 0.2 + 0.7 may exceed 1 by rounding alone."""


class Need(NamedTuple):
    """What a run takes of one room."""

    memory_bytes: int
    load: float
    """Share of a GPU's time (at most the room's limit), or CPUs of a host."""
    whole: bool = False
    """Nobody else may be in the room."""


NOTHING = Need(0, 0.0)


class Occupant(NamedTuple):
    """One run in a room."""

    end_s: float
    """Upper quantile of its end; infinite when nothing is known."""
    run_id: str
    started_s: float
    predicted_end_s: float
    """What was predicted at its start; `end_s` is later once it has outlived that."""
    need: Need

    @property
    def has_outlived(self) -> bool:
        """It runs for longer than was predicted."""
        return self.end_s > self.predicted_end_s


class Reservation(NamedTuple):
    """Part of a room that is held back for a run which starts later."""

    start_s: float
    end_s: float
    need: Need


@dataclass(slots=True)
class Room:
    """A GPU, a host or ports. The reserve is already taken off."""

    whole_bytes: int
    """Memory of an empty room: capacity minus reserve."""
    load_limit: float
    """Largest sum of loads of runs that share."""
    free_bytes: int
    """What may be promised now; less than the occupants leave when outsiders use it."""
    load: float = 0.0
    foreign: bool = False
    """Somebody outside headway is in it: not to be given whole."""
    occupants: list[Occupant] = field(default_factory=list)
    """By end, soonest first."""
    reservations: list[Reservation] = field(default_factory=list)
    index: int = 0
    """A GPU's number on its node, or that of a port."""
    product: str = ""
    """A GPU's product name."""
    uuid: str = ""
    """A GPU's."""
    distances: Mapping[str, int] = field(default_factory=dict)
    """A GPU's, see `Gpu`."""
    alone: bool = False
    """Whoever is in it has it alone, however little it needs: see `MemoryMeans`."""
    is_gpu: bool = True
    """Who is in it slows the others there."""

    def taken_by(self, need: Need) -> Need:
        """What a run that has *need* takes of it."""
        return need._replace(whole=True) if self.alone else need

    def copy(self) -> "Room":
        """The same room, to try something out."""
        return replace(self, occupants=list(self.occupants), reservations=list(self.reservations))

    @property
    def taken_whole(self) -> bool:
        """One run has it alone."""
        return bool(self.occupants) and self.occupants[0].need.whole

    @property
    def left_alone(self) -> bool:
        """One who is on this GPU runs for longer than was predicted: others would slow it further.

        Few long runs keep the large ones waiting, and nobody knows beforehand which these are.
        """
        return self.is_gpu and any(one.has_outlived for one in self.occupants)

    @property
    def idle(self) -> bool:
        """Nobody is in it: it may be given as a whole."""
        return not self.occupants and not self.foreign

    @property
    def free_load(self) -> float:
        """What is left of the load that it takes."""
        return self.load_limit - self.load

    def enter(self, occupant: Occupant) -> None:
        """Let *occupant* in; the caller has asked `fits_now`."""
        insort(self.occupants, occupant)
        self.free_bytes -= occupant.need.memory_bytes
        self.load += occupant.need.load

    def leave(self, run_id: str) -> None:
        """Take the run out of the room."""
        for at, occupant in enumerate(self.occupants):
            if occupant.run_id == run_id:
                del self.occupants[at]
                self.free_bytes += occupant.need.memory_bytes
                # Not accumulated: an empty room has a load of exactly 0.
                self.load = sum(one.need.load for one in self.occupants)
                return

    def outlived(self, now_s: float, overrun_frac: float) -> None:
        """Expect occupants that have outlived their prediction to go on for a while.

        They are taken to need *overrun_frac* of the time they have run already.
        """
        for occupant in self.occupants:
            if occupant.predicted_end_s > now_s:
                continue
            longer_s = now_s + overrun_frac * max(1.0, now_s - occupant.started_s)
            self.occupants[self.occupants.index(occupant)] = occupant._replace(end_s=longer_s)
        self.occupants.sort()

    def fits_now(self, need: Need) -> bool:
        """Does *need* fit beside those who are in the room, reservations aside?"""
        need = self.taken_by(need)
        if need.whole:
            return self.idle and self.whole_bytes >= need.memory_bytes
        if self.free_bytes < need.memory_bytes:
            return False
        if self.load + need.load > self.load_limit + ROUNDING:
            return False
        return not self.taken_whole and not self.left_alone

    def fits_during(self, need: Need, start_s: float, end_s: float) -> bool:
        """Does *need* fit from *start_s* to *end_s* with all reservations kept?

        Nobody enters but by a reservation, so the room is fullest at the start or
        where a reservation begins.
        """
        need = self.taken_by(need)
        if not self._fits_at(need, start_s):
            return False
        for reservation in self.reservations:
            if reservation.start_s >= end_s or reservation.end_s <= start_s:
                continue
            if need.whole or reservation.need.whole:
                return False
            if reservation.start_s > start_s and not self._fits_at(need, reservation.start_s):
                return False
        return True

    def _fits_at(self, need: Need, at_s: float) -> bool:
        free_bytes, load = self.free_bytes, self.load
        left = len(self.occupants)
        for occupant in self.occupants:
            if occupant.end_s > at_s:
                break
            free_bytes += occupant.need.memory_bytes
            load -= occupant.need.load
            left -= 1
        for reservation in self.reservations:
            if reservation.start_s <= at_s < reservation.end_s:
                if need.whole or reservation.need.whole:
                    return False
                free_bytes -= reservation.need.memory_bytes
                load += reservation.need.load
        if need.whole:
            return left == 0 and not self.foreign and self.whole_bytes >= need.memory_bytes
        if free_bytes < need.memory_bytes or (left and self.occupants[-1].need.whole):
            return False
        return load + need.load <= self.load_limit + ROUNDING

    def opens_at(self, need: Need, now_s: float) -> float:
        """The earliest time at which *need* fits, reservations aside; infinite if it never does."""
        if self.fits_now(need):
            return now_s
        if self.taken_by(need).whole:
            if self.foreign or self.whole_bytes < need.memory_bytes or not self.occupants:
                return math.inf
            return self.occupants[-1].end_s
        free_bytes, load = self.free_bytes, self.load
        for occupant in self.occupants:
            free_bytes += occupant.need.memory_bytes
            load -= occupant.need.load
            if free_bytes >= need.memory_bytes and load + need.load <= self.load_limit + ROUNDING:
                return occupant.end_s
        return math.inf
