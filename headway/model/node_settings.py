"""What an operator sets for a node; edited as a Prefect block, kept in the ledger's rows."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headway.model.job_types import AnySize, MemorySize
from headway.model.node import FREE_PORTS, Capacity, Gpu, Node, Reserve
from headway.model.number_range import PortRange
from headway.units import GIB, MIB


class NodeSettings(BaseModel):
    """How much of a node headway may promise, and what it costs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    reserve_host_memory: AnySize | Literal["auto"] = "auto"
    """Held back for the system, such as 4GiB; auto is a tenth, 1 to 16 GiB."""
    reserve_cpus: Annotated[float, Field(ge=0, le=4096)] = 0.0
    """Processors held back for the system."""
    reserve_gpu_memory: AnySize = 512 * MIB
    """Held back on each GPU."""
    reserve_disk: AnySize | Literal["auto"] = "auto"
    """Left free by runs that do not say how much disk they need; auto is a twentieth, 1 to 20 GiB.
    """
    price_per_hour: Annotated[float, Field(ge=0)] = 0.0
    """For an hour of the whole node, CPU jobs."""
    gpu_price_per_hour: Annotated[float, Field(ge=0)] = 0.0
    """For an hour of one GPU."""
    cache_budget: MemorySize = 50 * GIB
    """Disk space for staged data sets."""
    keep_checkpoint_days: Annotated[float, Field(gt=0, le=36_500)] | None = 30.0
    """Days after the end of a run that did not end well that its checkpoint stays, from which a
    retry goes on; for ever when empty."""
    keep_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """Days after its end that a run's outputs, logs and folder stay; for ever when not set."""
    keep_size: AnySize | None = None
    """Most that the folders of finished runs take together, such as 500GiB: the oldest go first;
    anything when not set."""

    ports: PortRange = FREE_PORTS
    """Of the node's loopback, from which the ports of runs are published, and sessions are given
    theirs."""

    def reserve(self, capacity: Capacity) -> Reserve:
        """The reserve these settings mean on a machine of *capacity*."""
        held = self.reserve_host_memory
        automatic = min(max(capacity.host_memory_bytes // 10, GIB), 16 * GIB)
        held_bytes = automatic if isinstance(held, str) else held
        return Reserve(cpus=self.reserve_cpus, host_memory_bytes=held_bytes)

    def with_reserve(self, gpu: Gpu) -> Gpu:
        """*gpu* with its reserve."""
        return replace(gpu, reserve_bytes=self.reserve_gpu_memory)

    def cost(self, runtime_s: float, *, gpus: int, cpu_frac: float) -> float:
        """Price of a run: its GPUs by the hour, or its share of the node's processors.

        Args:
            runtime_s: Wall time.
            gpus: GPUs it holds.
            cpu_frac: Share of the node's processors it holds, 0..1.
        """
        hours = runtime_s / 3600.0
        if gpus:
            return hours * gpus * self.gpu_price_per_hour
        return hours * self.price_per_hour * cpu_frac


def price_on(node: Node, runtime_s: float, *, gpus: int, cpus: float) -> float:
    """Price of a run on *node*, by the rule that its own cost goes by."""
    prices = NodeSettings(
        price_per_hour=node.price_per_hour, gpu_price_per_hour=node.gpu_price_per_hour
    )
    cpu_frac = min(1.0, cpus / node.capacity.cpus)
    return prices.cost(runtime_s, gpus=gpus, cpu_frac=cpu_frac)
