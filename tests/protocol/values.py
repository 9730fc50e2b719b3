"""The lease protocol as values: one run's part of a state, the nodes' part, and the rules.

A state of the model is one `Row` for each run and one `Node` for each node. All of
them are tuples, so that states can be compared, sorted and kept in a set.

Time is counted in units: a lease is renewed at age 0, expires at `TTL`, and the
guard's margin is one unit. What a frozen or dead process does is nothing, and the
search takes the steps in every order: so a process that sleeps between two of its
steps needs no state of its own. Only a machine that sleeps as a whole has one.
"""

from dataclasses import dataclass
from typing import NamedTuple

TTL = 2
MARGIN = 1

WAITING, CLAIMED, RUNNING, ENDED = "waiting", "claimed", "running", "ended"
SCHEDULED, ACTIVE, CANCELLING = "scheduled", "active", "cancelling"
OK, CANCELLED, LOST = "ok", "cancelled", "lost"
CREATED, LIVE, EXITED = "created", "live", "exited"
UP, FROZEN, WOKEN = "up", "frozen", "woken"
UNGUARDED, UNGUARDED_LATE, GUARDED_AGAIN = "unguarded", "unguarded for a unit", "guarded again"
MODES = (UP, FROZEN, WOKEN, UNGUARDED, UNGUARDED_LATE, GUARDED_AGAIN)
"""Of a node."""
STARTING, TAKEN, BEGUN, FOLLOWING, LEAVING = (
    "starting", "taken", "begun", "following", "leaving",
)  # fmt: skip


class Lease(NamedTuple):
    """The run's live lease."""

    node: int
    attempt: int
    age: int
    """Since the last renewal, on the database's clock."""
    claim: int
    """Units until the claim's deadline, plus 1; 0 once a flow process has taken it up."""


class Flow(NamedTuple):
    """A flow process: what it remembers of its run."""

    attempt: int
    holds: bool
    """Whether the token that it remembers is that of the live lease."""
    phase: str


class Box(NamedTuple):
    """The container of an attempt."""

    attempt: int
    state: str
    unrenewed: int
    """Since the guard last heard that its lease was renewed, on the node's clock."""


class Cell(NamedTuple):
    """What one run has on one node."""

    flow: Flow | None = None
    box: Box | None = None


EMPTY = Cell()


class Row(NamedTuple):
    """One run: its row of the ledger, its lease, what Prefect says, its cell on each node."""

    state: str
    attempt: int
    end: str
    prefect: str
    told: bool
    lease: Lease | None
    cells: tuple[Cell, ...]


class Node(NamedTuple):
    """One node."""

    member: bool
    mode: str


WELL = Node(True, UP)


class State(NamedTuple):
    """All of it."""

    nodes: tuple[Node, ...]
    rows: tuple[Row, ...]


UNLIMITED = NEVER = 1_000


@dataclass(frozen=True)
class Rules:
    """How large the model is, and the rules of the protocol; each can be broken."""

    nodes: int = 2
    runs: int = 2
    attempts: int = 2
    capacity: int = 1
    """Leases that a node can hold."""
    told_to_prefect: bool = True
    """Whether Prefect's side is a part of the model: states, cancel, retry, the outbox."""
    faults: int = UNLIMITED
    """So many faults at most: answers lost, flows or guards dead, machines asleep or off."""

    # What the protocol says. The value that is not the default is a bug.
    fence_token: bool = True
    """A write is refused unless its token is that of the live lease."""
    fence_attempt: bool = True
    """A write is refused unless its attempt is the run's."""
    fence_release: bool = True
    """A release is refused unless its token is that of the live lease."""
    remove_after: int = TTL + MARGIN
    """Age of every lease from which on `node remove` gives the places away."""
    guard_limit: int = TTL - MARGIN
    """Time without renewal after which the guard kills."""
    guard_kills: bool = True
    guard_kills_created: bool = True
    """Containers that were created and not started yet are removed likewise."""
    guard_remembers: bool = True
    """A guard that was restarted knows when it last renewed."""
    counts_sleep: bool = True
    """The guard's clock runs on while the machine sleeps."""
    begin_renews: bool = True
    """`begin` renews the lease, so that the guard may count from the container's creation."""
    container_first: bool = True
    """The lease is released only after the container is gone."""
    claims_end: bool = True
    locked: bool = True
    """Admission holds the node's row."""
    told_when_seen: bool = True
    """`told` is set when Prefect was seen in the state of the ledger's end, not before."""
    first_end_counts: bool = True

    @property
    def unrenewed_cap(self) -> int:
        """Nothing differs between a longer time without renewal and this one."""
        return self.guard_limit


def first_state(rules: Rules) -> State:
    """Every run waits, every node is up and empty."""
    cells = (EMPTY,) * rules.nodes
    row = Row(WAITING, 1, "", SCHEDULED, False, None, cells)
    return State((WELL,) * rules.nodes, (row,) * rules.runs)
