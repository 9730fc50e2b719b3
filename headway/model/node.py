"""A node: what it has, what is held back, and what a reading of it says."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from headway.model.gpu_health import GpuDrain
from headway.model.number_range import NumberRange
from headway.model.profile import GpuRates


class NodeState(enum.StrEnum):
    """May something start on this node?"""

    READY = "ready"
    """Takes new runs."""
    DRAINING = "draining"
    """What runs there goes on; nothing new starts. An operator did this."""
    LOST = "lost"
    """Its worker has not been heard of; its leases stay, since its containers may live.
    Kept in the ledger while an operator removes it: nothing there is renewed any more."""


class PortUse(enum.StrEnum):
    """How a program is reached at a port of its own."""

    PUBLISHED = "published"
    """The engine leads a free port of the node to it: any number of runs may have the same one."""
    BOUND = "bound"
    """It listens at that port of the node itself, which one run at a time can."""
    NONE = "none"
    """Not at all: containers have no network."""


FREE_PORTS = NumberRange(29_500, 32_767)
"""Ports of a node that runs are given where its operator says nothing: above them Linux takes the
ports of connections that go out."""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of a node's loopback."""

    use: PortUse = PortUse.BOUND
    free: NumberRange = FREE_PORTS
    """From these runs are given any."""


def is_of_type(wish: str, product: str) -> bool:
    """Whether each word of *wish* is one of the words of *product*; an empty wish is any.

    Whole words: whoever asks for an L4 is not given an L40S.
    """
    return _words(wish) <= _words(product)


@lru_cache
def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))


class MemoryMeans(enum.StrEnum):
    """By what runs that share a GPU are kept to the memory that they were granted of it.

    The strongest that a node has comes first, each is tried out when its agent starts. With the
    last two a run has it alone.
    """

    DRIVER_LIMIT = "driver_limit"
    """The driver gives them no more: NVML's limits of a control group, driver r615 and newer."""
    WATCH = "watch"
    """Who takes what others lack is warned, and then ended: see `policy.over_grant`."""
    MIG = "mig"
    """The hardware keeps slices apart; in one of them nobody sees what each program holds."""
    WHOLE = "whole"
    """Nothing: nobody sees what each program holds."""

    @property
    def shares(self) -> bool:
        """May several runs be on it?"""
        return self in (MemoryMeans.DRIVER_LIMIT, MemoryMeans.WATCH)


WITHOUT_NVLINK = 100
"""Added to the distance of two GPUs that no NVLink joins: above all of NVML's levels."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the node offers it."""

    uuid: str
    """NVML's UUID, ``GPU-…``; the only name that survives a reboot."""
    index: int
    """Its number on the node, for people."""
    name: str
    """NVML's product name, such as ``NVIDIA H200``."""
    memory_bytes: int
    """Physical memory."""
    reserve_bytes: int = 0
    """Held back for CUDA contexts and for what runs outside headway."""
    distances: Mapping[str, int] = field(default_factory=dict)
    """By uuid, how far the node's other GPUs are: NVML's level of what is above both, from 0 (one
    board) over 40 (one NUMA node) to 50, and `WITHOUT_NVLINK`. Those of which nothing is told are
    left out."""
    kept_by: MemoryMeans = MemoryMeans.WATCH
    kept_why: str = ""
    """Why by nothing stronger; empty where there is nothing, or nobody has tried."""
    tries_again: bool = False
    """The driver did not answer: within an hour its agent tries again what is stronger."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node has in all, before its reserve."""

    cpus: float
    """Logical CPUs this node may use (the cgroup's quota where there is one)."""
    host_memory_bytes: int
    """Host memory this node may use (the cgroup's limit where there is one)."""
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """What a node holds back from jobs."""

    cpus: float = 0.0
    host_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the site."""

    name: str
    pool: str
    capacity: Capacity
    reserve: Reserve = field(default_factory=Reserve)
    state: NodeState = NodeState.READY
    state_reason: str = ""
    """Why it is draining or lost; empty when ready."""
    price_per_hour: float = 0.0
    """Price of the whole node for an hour, in the site's currency."""
    gpu_price_per_hour: float = 0.0
    """Price of one GPU for an hour, in the site's currency."""
    ports: NodePorts = field(default_factory=NodePorts)
    gpu_drains: Mapping[str, GpuDrain] = field(default_factory=dict)
    """Its GPUs that take no runs, by uuid."""


class NodeSpace(NamedTuple):
    """A node, and what it could give if nothing of this site ran there."""

    node: Node
    host_memory_bytes: int


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process that holds GPU memory."""

    pid: int
    """The host's process id, also when the process lives in a container."""
    memory_bytes: int | None
    """Memory it holds; None where the driver does not say."""
    run_id: str = ""
    """The run of this site that it belongs to; empty for anybody else's, or where unknown."""
    user: str = ""
    """Of a process that is no run's; empty where it cannot be read here."""
    command: str = ""
    """Of such a one, its program and the argument right behind it."""
    since: datetime | None = None
    """When such a one was started."""


@dataclass(frozen=True, slots=True)
class GpuReading(GpuRates):
    """One GPU at one moment."""

    uuid: str
    index: int
    name: str
    memory_bytes: int
    used_bytes: int
    """In use by anybody, headway or not, and kept by the driver."""
    utilisation_frac: float | None = None
    """Share of the last sampling period in which a kernel ran; None if not offered."""
    processes: tuple[GpuProcess, ...] = ()
    driver_bytes: int = 0
    """Of what is in use, what the driver keeps for itself; 0 where it does not say."""

    @property
    def program_bytes(self) -> int:
        """In use by programs, headway's or not."""
        return self.used_bytes - self.driver_bytes


@dataclass(frozen=True, slots=True)
class HostReading:
    """The host at one moment."""

    memory_bytes: int
    """Host memory in all (the cgroup's limit where there is one)."""
    used_bytes: int
    """What could not be given to a new process: total minus available."""
    cpu_frac: float
    """Share of all CPUs in use since the reading before, 0..1."""
    disk_free_bytes: int
    """Free on the file system of headway's home."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """Everything observed on a node at one moment.

    `gpus` is None when the GPUs could not be read: then nothing is known of
    them, which is never the same as nothing being used.
    """

    at: datetime
    host: HostReading
    gpus: tuple[GpuReading, ...] | None = ()
    gpu_error: str = ""
    """Why `gpus` is None, in one line."""
    lost_gpus: Mapping[str, str] = field(default_factory=dict)
    """GPUs that fell off the bus, by uuid, with the cause: they do not come back alone."""
    closed: str = ""
    """Why the node starts nothing at this moment, such as bounds that cannot be trusted."""
    busy_ports: tuple[int, ...] = ()
    """At which TCP ports any program listens."""
    slots: int | None = None
    """How many runs more the node's worker may submit; None where it has no limit."""
    resting: tuple[str, ...] = ()
    """Runs whose last start here has failed, and that are not to be started yet."""
    checkpoint_age_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds since each run here last wrote into its checkpoint; nothing of those without one."""
    run_host_bytes: Mapping[str, int] = field(default_factory=dict)
    """Host memory that this site's containers hold, by run; nothing of those that do not tell."""
    pythons: Mapping[str, str] | None = None
    """Of the Pythons that the site names an image for, those whose image is here, with it; its own
    with an empty text where the node has no engine. None: not known."""
