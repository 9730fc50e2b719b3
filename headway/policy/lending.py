"""Host memory that is promised and idle, lent to runs that may be stopped: how much, until when.

A lent lease counts against no promise: what is promised to others stays theirs, and whoever
has borrowed leaves before one of them can be killed for memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.model.lease import Lease
from headway.model.node import NodeReading
from headway.units import GIB

LEND_AFTER_S = 600.0
"""What a run leaves of its promise is lent once it has had it for so long: most of them need by
then what they ever need."""
_MOST_KEPT_BYTES = 4 * GIB
_KEPT_PART = 16


def expected_bytes(lease: Lease, reading: NodeReading) -> int:
    """Host memory that the run of *lease* is expected to need: what it uses and a quarter more.

    All of its promise where it has borrowed itself, has just begun, or where nobody can say
    what it uses.
    """
    used_bytes = reading.run_host_bytes.get(lease.run_id)
    had_s = (reading.at - lease.granted_at).total_seconds()
    if lease.lent or used_bytes is None or had_s < LEND_AFTER_S:
        return lease.host_memory_bytes
    return likely_bytes(lease.host_memory_bytes, used_bytes)


def likely_bytes(granted_bytes: int, used_bytes: int) -> int:
    """What a run that uses so much of its grant is expected to need of it."""
    return min(granted_bytes, used_bytes * 5 // 4)


def kept_bytes(capacity_bytes: int) -> int:
    """Memory that is always to be left for those who grow into their promises.

    The guard looks ten times a second and a kill takes two tenths: more than 10 GiB a second are
    not filled by page faults. Of a small node it is a part; there the kernel's order comes first.
    """
    return min(_MOST_KEPT_BYTES, capacity_bytes // _KEPT_PART)


@dataclass(frozen=True, slots=True)
class Borrower:
    """A container that runs in lent memory."""

    name: str
    used_bytes: int
    started_s: float
    """By any clock."""
    grace_s: float
    """That its job asks for."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """It is to be stopped: with its grace time, or at once where there is none."""

    name: str
    grace_s: float


def give_back(
    borrowers: Sequence[Borrower], available_bytes: int, capacity_bytes: int
) -> list[GiveBack]:
    """Who has to go now: as few as are enough, those that began last first.

    Args:
        borrowers: Those that are alive on the node.
        available_bytes: What a process of the node could get now.
        capacity_bytes: Of the node.
    """
    kept = kept_bytes(capacity_bytes)
    short_bytes, at_once = 2 * kept - available_bytes, available_bytes < kept
    found: list[GiveBack] = []
    for each in sorted(borrowers, key=lambda one: (-one.started_s, one.name)):
        if short_bytes <= 0:
            break
        found.append(GiveBack(each.name, 0.0 if at_once else each.grace_s))
        short_bytes -= each.used_bytes
    return found
