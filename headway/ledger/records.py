"""What the ledger gives back of nodes and runs: frozen records."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headway.model.job_text import job_nodes
from headway.model.lease import Demand, Fence, Lease, Resource
from headway.model.node import Node, NodeReading
from headway.model.run import Exit, Measurement, Prediction, RunState
from headway.model.size import Size


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as the ledger knows it."""

    node: Node
    boot_id: str
    worker_token: str
    """By which it knows the gateway; empty for whom that is none of, such as another node."""
    heartbeat_at: datetime
    reading: NodeReading | None
    identity: str = ""
    """The id that it keeps in its home; empty for one of version 0.1."""
    files_url: str = ""
    """Where its worker serves the files of its runs; empty while it does not."""
    files_certificate: str = ""
    """The one that it shows there, as PEM; empty where it shows none."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An attempt that held a part of the same GPU as another one for a while."""

    run_id: str
    team: str | None
    """None, as its job, where a node's login may not read the run any more."""
    job: Mapping[str, Any] | None
    granted_at: datetime
    started_at: datetime | None
    """Its container; None where it never did."""
    ended_at: datetime | None
    released_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the ledger knows it."""

    run_id: str
    name: str
    owner: str
    team: str
    pool: str
    queue: str
    priority: int
    preempted_for: str | None
    preemptions: int
    job: Mapping[str, Any]
    state: RunState
    attempt: int
    resource: Resource | None
    reason: str
    expected_start_at: datetime | None
    node: str | None
    runtime: str | None
    container: str | None
    submitted_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    exit: Exit | None
    prediction: Prediction | None
    demand: Demand | None
    demand_override: Mapping[str, Any] | None
    measurement: Measurement | None
    gang_id: str | None = None
    """The run whose part on another node this is."""
    gang_rank: int = 0
    ready_attempt: int | None = None
    """Of a part of a gang: the attempt whose data and image are on its node."""
    place: str | None = None
    """Where the others of that attempt reach its container."""
    told_end_at: datetime | None = None
    """When Prefect acknowledged how it ended."""
    suspended_at: datetime | None = None
    """Since when it waits for its user to resume it."""

    tag: float | None = None
    """Its place in the order of the queue."""
    promised_at: datetime | None = None
    """By when it was promised to start."""
    array_id: str | None = None
    """The array that it is a member of."""
    array_index: int | None = None

    @property
    def nodes(self) -> int:
        """On how many nodes it runs at once; the fewest it asks for while it waits."""
        chosen = self.demand.nodes if self.demand is not None else 0
        return chosen or job_nodes(self.job)

    @property
    def size(self) -> Size | None:
        """What was chosen of the sizes that its job allows; None where that has but one."""
        demand = self.demand
        return Size(demand.nodes, demand.gpus) if demand is not None and demand.nodes else None

    @property
    def goes_on(self) -> bool:
        """Whether its job says that it goes on from its checkpoint when it is stopped."""
        return bool(self.job.get("preemptible"))

    @property
    def is_ready(self) -> bool:
        """Whether this part of a gang could start its attempt now."""
        return self.ready_attempt == self.attempt

    @property
    def unleased(self) -> Fence:
        """The right to write for its attempt as long as nobody holds a lease for it."""
        return Fence(self.run_id, self.attempt)

    def fence(self, lease: Lease | None) -> Fence:
        """The right to write for its attempt; *lease* is the live one that the run has, if any.

        A run that waits may still have the lease of the attempt before.
        """
        return lease.fence if lease is not None and lease.attempt == self.attempt else self.unleased


@dataclass(frozen=True, slots=True)
class ArrayRecord:
    """An array as the ledger knows it."""

    array_id: str
    name: str
    owner: str
    team: str
    pool: str
    queue: str
    job: Mapping[str, Any]
    """What each member runs, with the names of parameters where their values go."""
    parameters: Mapping[str, Any]
    """As `Array.document` gives them."""
    size: int
    at_most: int | None
    created: int
    """So many of its members have become runs."""
    submitted_at: datetime
    cancelled_at: datetime | None
    cancelled_by: str
