"""What an inspection of the site looks at, to see whether its promises hold, and what it finds.

Values only: `admin.inspection.invariants` compares them. Each part is read at its own moment.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headway.model.lease import Lease
from headway.model.node import Node
from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind, RunState

UNDER_WAY_S = 60.0
"""What is younger, beside the time that a program has to end, is merely under way."""


class Kind(enum.StrEnum):
    """What disagrees."""

    LEASE = "lease"
    """A live lease that stands for no attempt at work."""
    NO_LEASE = "no_lease"
    """A granted run that holds nothing."""
    CLAIM = "claim"
    """A claim that nobody has taken up by its deadline."""
    OVERCOMMITTED = "overcommitted"
    TWICE = "twice"
    """Two live containers of one run."""
    CONTAINER = "container"
    """A container whose attempt holds no lease here."""
    FLOW = "flow"
    """A flow process of a run that is not granted here."""
    NO_PROCESS = "no_process"
    """A running run with neither container nor flow process."""
    UNTOLD = "untold"
    """An end that Prefect has not acknowledged."""
    PREFECT = "prefect"
    """Prefect's state of a run is not the one that the ledger calls for."""
    UNREADABLE = "unreadable"
    """A row of the ledger that cannot be read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: Kind
    subject: str
    """What it is about, by which it is known when it is looked at again."""
    what: str
    since: datetime | None
    """None where nobody can say."""
    mends: str
    """What mends it, or who has to."""
    under_way: bool
    """It is too young to be called broken."""


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run of the ledger."""

    run_id: str
    name: str
    state: RunState
    attempt: int
    node: str | None
    since: datetime | None
    """Since when it is in this state, where the ledger says."""
    exit_kind: ExitKind | None = None
    told_at: datetime | None = None
    suspended: bool = False
    is_rank: bool = False
    on_engine: bool = False
    """An engine has it, not a node: it holds no lease."""
    grace_s: float = 0.0
    """That its program has to end."""


@dataclass(frozen=True, slots=True)
class SeenLedger:
    """The ledger at one moment: everything that is live, and the runs that it is about."""

    now: datetime
    nodes: tuple[Node, ...]
    leases: tuple[Lease, ...] = ()
    """Unreleased ones, of removed nodes too."""
    runs: Mapping[str, SeenRun] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    """Rows and their columns that cannot be read."""
    ends_beyond: int = 0
    """Ended runs that are not among `runs`, since there are so many."""


@dataclass(frozen=True, slots=True)
class SeenContainer:
    """A container of this node."""

    name: str
    run_id: str
    attempt: int
    live: bool
    since: datetime | None
    """Since when it has ended, or else runs."""


@dataclass(frozen=True, slots=True)
class SeenNode:
    """This node, by its runtime and its processes."""

    node: str
    containers: tuple[SeenContainer, ...] | None = ()
    """None where the runtime does not answer."""
    flows: frozenset[str] = frozenset()
    """Runs whose flow process is alive here."""


@dataclass(frozen=True, slots=True)
class SeenState:
    """What Prefect says of a run."""

    view: PrefectView
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that was read."""

    ledger: SeenLedger
    here: SeenNode
    prefect: Mapping[str, SeenState] = field(default_factory=dict)
    """Of the runs that Prefect answered about; a deleted one is MISSING."""

    def young(self, since: datetime | None, grace_s: float = 0.0) -> bool:
        """Whether what is so *since* then may still be under way."""
        if since is None:
            return False
        return self.ledger.now - since < timedelta(seconds=UNDER_WAY_S + grace_s)

    def finding(
        self,
        kind: Kind,
        subject: str,
        what: str,
        mends: str,
        *,
        since: datetime | None = None,
        grace_s: float = 0.0,
    ) -> Finding:
        """One thing that is not as it should be, under way as long as that is young."""
        return Finding(kind, subject, what, since, mends, self.young(since, grace_s))


def named(run_id: str, run: SeenRun | None) -> str:
    """The run, as people are told of it."""
    return f"run {run_id}" if run is None else f"run {run.name} ({run_id})"


def janitor_of(node: str | None) -> str:
    """Who mends what is about *node*."""
    return f"the janitor of {node}" if node is not None else "the janitor of a node of its pool"
