"""What would start a waiting run earlier: the smallest changes of what it asks, to be tried out."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from headway.model.job_types import MIN_MEMORY_BYTES
from headway.model.lease import Demand
from headway.policy.fit import Headroom
from headway.units import MIB, MINUTE_S, format_size

_STEP_BYTES = 64 * MIB
_LEAST_CPUS = 0.5
_PARTS = (0.75, 0.5, 0.25)
_MOST_TRIED = 6
_GAINED_FRAC = 0.2
_EARLIER_FRAC = 0.9


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that the run would ask differently."""

    field: str
    """Of the job file."""
    value: int | float | str
    text: str
    """Such as ``8.0 GiB of host memory instead of 12 GiB``."""
    demand: Demand


def smaller_demands(demand: Demand, nodes: Sequence[Headroom]) -> Iterator[list[Change]]:
    """By resource the changes to try, the smallest first: to what some node has left, and parts.

    Args:
        demand: What the run asks of each node.
        nodes: Headroom now.
    """
    gpus = [room for node in nodes for room in node.gpus]
    yield [
        Change(
            "resources.host_memory", size,
            f"{format_size(size)} of host memory instead of "
            f"{format_size(demand.host_memory_bytes)}",
            replace(demand, host_memory_bytes=size),
        )
        for size in _sizes(demand.host_memory_bytes, (node.host.free_bytes for node in nodes))
    ]  # fmt: skip
    yield [
        Change(
            "resources.gpu_memory", size,
            f"{format_size(size)} of each GPU instead of {format_size(demand.gpu_memory_bytes)}",
            replace(demand, gpu_memory_bytes=size),
        )
        for size in _sizes(demand.gpu_memory_bytes, (room.free_bytes for room in gpus))
        if demand.gpus
    ]  # fmt: skip
    yield [
        Change(
            "resources.cpus", cpus, f"{cpus:g} CPUs instead of {demand.cpus:g}",
            replace(demand, cpus=cpus),
        )
        for cpus in _less(
            demand.cpus, (node.host.free_load for node in nodes),
            lambda cpus: math.floor(cpus * 2) / 2, _LEAST_CPUS,
        )
    ]  # fmt: skip


def fewer_gpus(gpus: int) -> list[int]:
    """Half of *gpus*, and half of that, down to one."""
    return [gpus >> step for step in range(1, gpus.bit_length())]


def is_earlier(waits: Sequence[float], than: Sequence[float]) -> bool:
    """Whether a change that makes a run wait so long is worth it; *than* is without it.

    Both are told for the same draws of what is not known, one by one: nearly always is it earlier,
    and in the middle by a good part of the wait. Where it is merely no later, it seldom helps: most
    of what was advised so started the run at the very same moment (docs/development/policy.md).
    """
    earlier = sum(with_it < without for with_it, without in zip(waits, than, strict=False))
    middle_s = statistics.median(than)
    gained_s = middle_s - statistics.median(waits)
    often = earlier >= _EARLIER_FRAC * len(waits)
    return often and gained_s > max(MINUTE_S, _GAINED_FRAC * middle_s)


def _sizes(asked: int, free: Iterable[int]) -> list[int]:
    def whole_steps(size: float) -> float:
        return size // _STEP_BYTES * _STEP_BYTES

    return [int(each) for each in _less(asked, free, whole_steps, MIN_MEMORY_BYTES)]


def _less(
    asked: float, free: Iterable[float], rounded: Callable[[float], float], least: float
) -> list[float]:
    """Amounts below *asked*, largest first: what is free somewhere, and parts of it."""
    amounts = {rounded(each) for each in (*free, *(asked * part for part in _PARTS))}
    return sorted((each for each in amounts if least <= each < asked), reverse=True)[:_MOST_TRIED]
