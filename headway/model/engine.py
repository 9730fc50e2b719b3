"""A scheduler of others below the site: its pools as the ledger keeps them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuKind:
    """GPUs of one type on a node."""

    type: str
    count: int
    shards: int = 0
    """Into how many parts all of them together are divided."""


@dataclass(frozen=True, slots=True)
class EngineNode:
    """One machine of a pool."""

    name: str
    cpus: int
    host_memory_bytes: int
    gpus: tuple[GpuKind, ...] = ()
    state: str = ""
    """The engine's own word."""


@dataclass(frozen=True, slots=True)
class EnginePool:
    """What becomes a work pool of headway: its machines, and what it lets a job have."""

    name: str
    nodes: tuple[EngineNode, ...]
    is_default: bool = False
    is_up: bool = True
    max_time_s: float | None = None
    """None: no limit."""
    default_time_s: float | None = None
    """What a job has that names none; None: `max_time_s`."""
    max_nodes: int | None = None


LEADS_TO = "leads-to"
"""Name of the site's setting that says to which pool runs go that name none; else to the nodes'."""
ENGINES = frozenset({"slurm"})
"""Names of engines: what a run's `runtime` says that was handed to one."""
