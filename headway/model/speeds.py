"""What a machine reached in half a minute of measuring, in the place of what its maker says."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

Flops = Annotated[float, Field(ge=1e8, le=1e17, allow_inf_nan=False)]
"""Operations a second, an addition and a multiplication counted apart."""
Rate = Annotated[float, Field(ge=1e5, le=1e15, allow_inf_nan=False)]
"""Bytes a second."""


@dataclass(frozen=True, slots=True)
class GpuSpeeds:
    """What one GPU reached. None: its image could not measure that."""

    fp32_flops_per_s: Flops
    """A product of large matrices, TF32 not used."""
    fp16_flops_per_s: Flops
    bf16_flops_per_s: Flops | None
    copy_bytes_per_s: Rate
    """From its memory to its memory, what is read and what is written counted both."""
    to_gpu_bytes_per_s: Rate | None
    """From pinned memory of the host."""
    from_gpu_bytes_per_s: Rate | None
    peer_bytes_per_s: Rate | None
    """To another GPU of its kind on its node."""


@dataclass(frozen=True, slots=True)
class NodeSpeeds:
    """What the CPUs and the disk of one node reached."""

    hash_bytes_per_s: Rate
    """SHA-256 on one core."""
    write_bytes_per_s: Rate
    """To the disk of headway's home, until it is there."""
    read_bytes_per_s: Rate
    """From there, with what the page cache gives away on request."""
    matmul_flops_per_s: Flops | None
    """A product of large matrices in single precision, on all cores."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What one look at a machine found."""

    node: NodeSpeeds
    gpu: GpuSpeeds | None = None
    no_gpu: Annotated[str, Field(max_length=300)] = ""
    """Why there is nothing of a GPU."""


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """What a GPU of one product reached, where and in which image."""

    speeds: GpuSpeeds
    memory_bytes: int
    node: str
    image: str


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """What the CPUs and the disk of a node reached, in which image."""

    speeds: NodeSpeeds
    image: str
    tried: tuple[str, ...] = ()
    """Products of its GPUs that were to be measured, too: not tried again in the same image."""
