"""Who schedules a pool: the leader, and the term in which it does."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """The time of one leader of a pool, which ends when another one's begins.

    Every write of a plan names it, and is refused once it is over: a leader that was frozen and
    wakes up changes nothing.
    """

    pool: str
    number: int


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a pool, as the ledger has it."""

    term: Term
    node: str
    holder: str
    """The process on that node."""
    left_s: float
    """Seconds until it may be replaced unless it renews, by the database's clock."""
