"""When a container that runs here may go on, and when it has to stop.

A run must never be alive on two nodes. So a container stops by itself before
its place can be given away. In seconds after the last renewal of its lease:

    0                        the guard asks the ledger; the lease expires a `ttl` later
    end − kill − its grace   SIGTERM, where no renewal has succeeded since
    end − kill               SIGKILL
    end = ttl − margin       it is dead
    ttl                      the lease expires, by the database's clock
    ttl + margin             only now may its place be given to another node

The guard counts from the moment *before* it asked, so its zero is never later
than the ledger's, whose answer may get lost. Between `end` and the moment at
which the place is given away lie two margins: so much may the clocks of node
and database differ in one ttl.
"""

from collections.abc import Iterable
from dataclasses import dataclass

_LONGEST_MARGIN_S = 60.0
_LONGEST_KILL_S = 10.0
_RENEW_EVERY_S = 5.0
_LONGEST_TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class GuardTimes:
    """The times of one site; all of them follow from the ttl of its leases."""

    ttl_s: float
    """A lease expires so long after its last renewal."""

    @property
    def margin_s(self) -> float:
        """What lies between a container's end and the expiry, and between that and a new grant."""
        return min(_LONGEST_MARGIN_S, self.ttl_s / 10)

    @property
    def end_s(self) -> float:
        """So long after the last renewal a container is dead."""
        return self.ttl_s - self.margin_s

    @property
    def kill_s(self) -> float:
        """What SIGKILL, the engine and the guard's own turn may take."""
        return min(_LONGEST_KILL_S, self.ttl_s / 20)

    @property
    def renew_every_s(self) -> float:
        """Between two renewals."""
        return min(_RENEW_EVERY_S, self.ttl_s / 10)

    @property
    def tick_s(self) -> float:
        """Between two looks at the clock."""
        return min(_LONGEST_TICK_S, self.ttl_s / 40)

    def grace_s(self, asked_s: float) -> float:
        """Of the grace time that a job asks for, what it gets: half of the time at most.

        A longer one would have its container stopped although renewals go well.
        """
        return min(asked_s, (self.end_s - self.kill_s) / 2)


@dataclass(frozen=True, slots=True)
class Held:
    """A container that was last seen alive on this node, and what the ledger said of its lease."""

    name: str
    grace_s: float
    """That its job asks for."""
    renewed_s: float
    """When the last renewal that succeeded was asked for, by the clock that runs in sleep."""
    expires: bool = True
    """Whether the ledger let it expire; not where no other node could be given the place."""
    stale: bool = False
    """The ledger answered that it belongs to no live attempt."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Ask the ledger to renew what is alive here."""


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM, *grace_s* to obey, SIGKILL."""

    name: str
    grace_s: float
    unrenewed_s: float
    """Since the last renewal."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL."""

    name: str
    unrenewed_s: float
    stale: bool


Instruction = Renew | Stop | Kill


def decide(
    held: Iterable[Held], asked_s: float | None, now_s: float, times: GuardTimes
) -> list[Instruction]:
    """What to do now; a container of which nothing is said is left alone.

    Args:
        held: Containers that are alive here.
        asked_s: When the ledger was last asked for a renewal; None where it never was.
        now_s: Now, by the same clock.
        times: The site's.
    """
    found: list[Instruction] = []
    if asked_s is None or now_s - asked_s >= times.renew_every_s:
        found.append(Renew())
    for each in held:
        unrenewed_s = now_s - each.renewed_s
        left_s = times.end_s - times.kill_s - unrenewed_s
        if each.stale or (each.expires and left_s <= 0):
            found.append(Kill(each.name, unrenewed_s, each.stale))
        elif each.expires and left_s <= times.grace_s(each.grace_s):
            found.append(Stop(each.name, left_s, unrenewed_s))
    return found
