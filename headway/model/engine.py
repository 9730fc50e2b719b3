"""A scheduler of others below the site: its pools as the ledger keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    address: str = ""
    """Where its engine answers; empty where this user's own settings say it."""
    containers: Mapping[str, str] | None = None
    """By program that starts images on a machine of it: why it does not; empty where it does. None
    where nobody could look."""


_LINE = """\
points = [(x / 10, 3 * x / 10 + 1) for x in range(10)]
slope = shift = 0.0
for epoch in range(1, 31):
    for x, y in points:
        error = slope * x + shift - y
        slope, shift = slope - 0.3 * error * x, shift - 0.3 * error
    loss = sum((slope * x + shift - y) ** 2 for x, y in points) / len(points)
    print(f"epoch {epoch}/30 loss: {loss:.6f}", flush=True)
"""
LEADS_TO = "leads-to"
"""Name of the site's setting that says to which pool runs go that name none; else to the nodes'."""
SAMPLE: Mapping[str, Any] = {
    "name": "line",
    "python": "3",
    "command": ["python3", "-c", _LINE],
    "resources": {"cpus": 1, "host_memory": "256MiB"},
}
"""What a run of such a pool is that is given no job: a machine there has no image of ours."""
ENGINES = frozenset({"slurm", "ray", "pbs", "pbs_classic", "lsf"})
"""Names of engines: what a run's `runtime` says that was handed to one."""
