"""What becomes of a demand: cut to the nodes where it is a guess, raised after a kill."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headway.model.attempt_record import Failures
from headway.model.lease import Basis, Demand, Sharing
from headway.model.node import Node, NodeSpace, is_of_type
from headway.model.run import PROGRAM_FAILURES, Exit, ExitKind
from headway.policy.admission import possible
from headway.units import MIB

RETRY_FACTOR = 1.5
"""A run killed for memory comes back with this much more of what was declared or learned."""
GUESS_FACTOR = 2.0
"""The same of what was only guessed, or raised before and still not enough."""
_SLOWER_ON_CPU = 10.0
"""Times as long takes a training without its GPU, where runs have not shown it."""
_LEAST_RETRY_BYTES = 512 * MIB
"""The least that is tried next where the job has not named what was not enough: programs differ
by more than small ones take."""


def raised(demand: Demand, override: Mapping[str, Any] | None) -> Demand:
    """*demand* with what an attempt is given after one that had too little.

    Args:
        demand: As it is forecast.
        override: Fields to change, as the ledger keeps them with the run.
    """
    more = override or {}
    if "host_memory_bytes" in more:
        host_bytes = more["host_memory_bytes"]
        demand = replace(demand, host_memory_bytes=host_bytes, host_memory_basis=Basis.RETRY)
    if "gpu_memory_bytes" in more and demand.gpus:
        gpu_bytes = more["gpu_memory_bytes"]
        demand = replace(demand, gpu_memory_bytes=gpu_bytes, gpu_memory_basis=Basis.RETRY)
        if more.get("whole_gpus"):
            demand = replace(demand, sharing=Sharing.WHOLE, gpu_utilisation_frac=1.0)
    return demand


def largest_host_bytes(demand: Demand, spaces: Sequence[NodeSpace], count: int = 1) -> int:
    """Host memory that each of *count* nodes can give that could hold the rest of *demand*.

    By the best of *spaces*; where none could hold the rest, by the largest.
    """
    rest = replace(demand, host_memory_bytes=0)
    able = [bytes_ for node, bytes_ in spaces if possible(rest, [node]) is None]
    sizes = sorted(able if len(able) >= count else (bytes_ for _, bytes_ in spaces), reverse=True)
    return sizes[min(count, len(sizes)) - 1] if sizes else 0


def largest_gpu_bytes(demand: Demand, nodes: Sequence[Node], count: int = 1) -> int:
    """Memory that each GPU has at least where *demand* finds its largest ones.

    On each of *count* nodes as many of them as it asks for, of the type that it
    asks for; 0 where there are not so many.
    """
    found = []
    for node in nodes:
        sizes = [
            gpu.memory_bytes - gpu.reserve_bytes
            for gpu in node.capacity.gpus
            if is_of_type(demand.gpu_type, gpu.name)
        ]
        if len(sizes) >= demand.gpus:
            found.append(sorted(sizes, reverse=True)[demand.gpus - 1])
    return sorted(found, reverse=True)[count - 1] if len(found) >= count else 0


def within(demand: Demand, spaces: Sequence[NodeSpace], count: int = 1) -> Demand:
    """*demand* with a guess that no node could hold cut to what *count* of *spaces* can give.

    A guess must not refuse a job. What was declared or learned is left as it
    is, and refused if need be.
    """
    if not spaces:
        return demand
    if demand.gpus and demand.gpu_memory_basis is Basis.PRIOR:
        largest = largest_gpu_bytes(demand, [node for node, _ in spaces], count)
        demand = replace(demand, gpu_memory_bytes=min(demand.gpu_memory_bytes, largest))
    if demand.host_memory_basis is Basis.PRIOR:
        largest = largest_host_bytes(demand, spaces, count)
        demand = replace(demand, host_memory_bytes=min(demand.host_memory_bytes, largest))
    return demand


def sooner_on_cpu(
    cpu_runtime_s: float | None, gpu_runtime_s: float | None, gpu_wait_s: float | None
) -> bool:
    """Whether a run that waits for a GPU would end sooner if it started on the CPU now.

    Args:
        cpu_runtime_s: Predicted without a GPU, median; None when nothing is known.
        gpu_runtime_s: Predicted with the GPUs it asks for; None when nothing is known.
        gpu_wait_s: Expected until these are free; None when nobody can say, infinite for never.

    Returns:
        True where nothing is known of it: its owner has said that it may. Of one that is known
        False where nobody can say how long it waits, and what is not known of it follows from
        the other by `_SLOWER_ON_CPU`.
    """
    known_s = cpu_runtime_s if gpu_runtime_s is None else gpu_runtime_s * _SLOWER_ON_CPU
    if known_s is None:
        return True
    if gpu_wait_s is None:
        return False
    cpu_s = known_s if cpu_runtime_s is None else cpu_runtime_s
    gpu_s = cpu_s / _SLOWER_ON_CPU if gpu_runtime_s is None else gpu_runtime_s
    return cpu_s < gpu_wait_s + gpu_s


def runs_again(exit_: Exit, retries: int, before: Failures) -> bool:
    """Whether an attempt that ended so is followed by another one.

    A program's own failure is never repeated: it would fail again. What the
    memory limit ended is, *retries* times in the life of the run; what node or
    engine ended, *retries* times an hour. What was preempted always is.

    Args:
        exit_: How the attempt ended.
        retries: So often its job may be tried again.
        before: How often its run's attempts had failed before this one.
    """
    if exit_.kind is ExitKind.INFRASTRUCTURE:
        return survives_the_site(retries, before)
    more_memory = exit_.kind in PROGRAM_FAILURES and before.program < retries
    return more_memory or exit_.kind is ExitKind.PREEMPTED


def survives_the_site(retries: int, before: Failures) -> bool:
    """Whether a run goes on when node or engine end its attempt now."""
    return before.infrastructure < retries


def after_out_of_memory(demand: Demand, peak_bytes: int | None, largest_bytes: int) -> int | None:
    """Host memory for the next attempt, in bytes, at most *largest_bytes*.

    Half as much again as was not enough; twice as much where that was a guess.

    Returns:
        None when it had all that there is.
    """
    had_bytes, basis = max(demand.host_memory_bytes, peak_bytes or 0), demand.host_memory_basis
    more_bytes = round(had_bytes * _factor(basis))
    if basis in {Basis.PRIOR, Basis.PREDICTED}:
        more_bytes = max(more_bytes, _LEAST_RETRY_BYTES)
    more_bytes = min(more_bytes, largest_bytes)
    return more_bytes if more_bytes > demand.host_memory_bytes else None


def after_gpu_out_of_memory(
    demand: Demand, above_bytes: int, largest_bytes: int
) -> dict[str, Any] | None:
    """What the next attempt asks for of each GPU, as `raised` takes it.

    More memory by the same factors as on the host; a GPU to itself, the
    largest at most, where no less would do.

    Args:
        demand: What was not enough.
        above_bytes: What it was granted, held or asked for: it needs more than that.
        largest_bytes: See `largest_gpu_bytes`.

    Returns:
        None when it had the largest GPUs to itself.
    """
    whole = demand.sharing is Sharing.WHOLE
    if whole and max(above_bytes, demand.gpu_memory_bytes) >= largest_bytes:
        return None
    more_bytes = round(above_bytes * _factor(demand.gpu_memory_basis))
    whole = whole or more_bytes >= largest_bytes
    return {"gpu_memory_bytes": min(more_bytes, largest_bytes), "whole_gpus": whole}


def _factor(basis: Basis) -> float:
    return RETRY_FACTOR if basis in {Basis.DECLARED, Basis.PREDICTED} else GUESS_FACTOR
