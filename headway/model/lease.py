"""What a run demands, what a lease grants it, and the answers in between."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

NO_EXPIRY = datetime(9999, 1, 1, tzinfo=UTC)
"""Expiry of a lease whose node goes on without renewing: no other could be given its place."""


ANY_PORT = 0
"""In the ports of a demand: one more, whichever is free."""


class Sharing(enum.StrEnum):
    """May the GPU be shared with other jobs?"""

    SHARED = "shared"
    """Others may use the same GPU where their memory and utilisation fit."""
    WHOLE = "whole"
    """The GPU is this job's alone."""


class Basis(enum.StrEnum):
    """Where a number of a demand comes from."""

    DECLARED = "declared"
    PREDICTED = "predicted"
    PRIOR = "prior"
    RETRY = "retry"
    """Raised after an attempt was killed for memory."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one run needs on one node, upper quantiles, in bytes and CPUs."""

    host_memory_bytes: int
    cpus: float = 1.0
    gpus: int = 0
    gpu_memory_bytes: int = 0
    """On each GPU; ignored where the whole GPU is asked for."""
    sharing: Sharing = Sharing.SHARED
    gpu_utilisation_frac: float = 1.0
    """Predicted share of a GPU's time; 1 shares with nobody busy."""
    gpu_type: str = ""
    """Words of the GPU's product name that the job insists on; empty for any."""
    ports: tuple[int, ...] = ()
    """As the program has them; `ANY_PORT` for one that it is told."""
    disk_bytes: int = 0
    """Scratch and outputs; 0 where the job does not say."""
    host_memory_basis: Basis = Basis.PRIOR
    host_memory_why: str = field(default="", compare=False)
    """What a guess of it rests on; empty where it is none."""
    gpu_memory_basis: Basis = Basis.DECLARED
    nodes: int = 0
    """On so many nodes at once, where the job gives a range; 0 where the job says it."""


@dataclass(frozen=True, slots=True)
class GpuGrant:
    """What a lease holds of one GPU."""

    uuid: str
    memory_bytes: int
    """Promised memory; the GPU's whole memory when `sharing` is WHOLE."""
    sharing: Sharing = Sharing.SHARED
    utilisation_frac: float = 1.0


@dataclass(frozen=True, slots=True)
class Fence:
    """Who writes for an attempt: whatever it writes is refused once another has the run.

    Compared with the ledger in the transaction that writes.
    """

    run_id: str
    attempt: int
    token: str = ""
    """Of its lease; empty for a run that holds none, such as one that waits."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A grant on one node, with an owner, a token and an expiry.

    An expired lease still counts until the node that has it proves that the
    container is gone: expiry alone would run a job twice.
    """

    lease_id: int
    run_id: str
    attempt: int
    node: str
    token: str
    """Secret of the owner; a renewal with another token is refused."""
    host_memory_bytes: int
    cpus: float
    gpus: tuple[GpuGrant, ...]
    ports: Mapping[int, int]
    """The port of the node for each of the program's: another one where an engine publishes it."""
    granted_at: datetime
    expires_at: datetime
    predicted_end_at: datetime | None = None
    """Upper quantile of the end, for backfill; None when nothing is known."""
    disk_bytes: int = 0
    gang_rank: int = 0
    """Above 0: held for a part of the run on this node, which has not begun yet."""
    start_by: datetime | None = None
    """Until then a flow process has to take the claim up; None once one has."""

    @property
    def ports_text(self) -> str:
        """Where each port of the program is reached on its node; empty without one."""
        said = (f"port {own} at 127.0.0.1:{port}" for own, port in self.ports.items())
        return ", ".join(said)

    @property
    def fence(self) -> Fence:
        """The right to write for the attempt that it was granted to."""
        return Fence(self.run_id, self.attempt, self.token)


@dataclass(frozen=True, slots=True)
class Admit:
    """The demand may start now, with these grants."""

    node: str
    gpus: tuple[GpuGrant, ...] = ()


class Resource(enum.StrEnum):
    """What a run can be short of."""

    HOST_MEMORY = "host_memory"
    CPUS = "cpus"
    GPUS = "gpus"
    GPU_MEMORY = "gpu_memory"
    PORTS = "ports"
    NODE = "node"
    """No node may take runs now (drained, lost, unreadable, its disk too full)."""
    QUOTA = "quota"
    """Its team has as much as it may have."""
    TURN = "turn"
    """It would fit, but others are ahead of it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The demand does not fit now. Scarcity is an answer, not an error."""

    resource: Resource
    """The scarcest resource."""
    reason: str
    """One sentence with the numbers, for people."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No node of the site could ever hold the demand."""

    field: str
    """The job's field that is too large."""
    value: object
    allowed: str
    """What would fit, as the end of a sentence."""
