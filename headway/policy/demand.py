"""What becomes of a demand: cut to the node where it is a guess, raised after a kill."""

from dataclasses import replace

from headway.model.lease import Basis, Demand
from headway.model.node import Node
from headway.model.run import Exit, ExitKind

RETRY_FACTOR = 1.5
"""A run killed for memory comes back with this much more."""


def raised(demand: Demand, host_memory_bytes: int | None) -> Demand:
    """*demand* with the host memory that a killed attempt is given next; None changes nothing."""
    if host_memory_bytes is None:
        return demand
    return replace(demand, host_memory_bytes=host_memory_bytes, host_memory_basis=Basis.RETRY)


def within(demand: Demand, node: Node) -> Demand:
    """*demand* with a prior that no node could hold cut to what *node* can give.

    The prior of ten times the data set is a guess; a guess must not refuse a
    job. What was declared or learned is left as it is, and refused if need be.
    """
    largest = node.capacity.host_memory_bytes - node.reserve.host_memory_bytes
    if demand.host_memory_basis is not Basis.PRIOR or demand.host_memory_bytes <= largest:
        return demand
    return replace(demand, host_memory_bytes=largest)


def sooner_on_cpu(
    cpu_runtime_s: float | None, gpu_runtime_s: float | None, gpu_wait_s: float
) -> bool:
    """Whether a run that waits for a GPU would end sooner if it started on the CPU now.

    Args:
        cpu_runtime_s: Predicted without a GPU, median; None when nothing is known.
        gpu_runtime_s: Predicted with the GPUs it asks for; None when nothing is known.
        gpu_wait_s: Expected until these are free; infinite when nobody can say.

    Returns:
        False unless both runtimes are known: a guess must not keep a job from its GPU.
    """
    if cpu_runtime_s is None or gpu_runtime_s is None:
        return False
    return cpu_runtime_s < gpu_wait_s + gpu_runtime_s


def runs_again(exit_: Exit, *, attempt: int, retries: int, preemptions: int = 0) -> bool:
    """Whether an attempt that ended so is followed by another one.

    A program's own failure is never repeated: it would fail again. What the
    node or the memory limit ended is, *retries* times. What was preempted
    always is: those *preemptions* count as no attempts.
    """
    if exit_.kind is ExitKind.PREEMPTED:
        return True
    again = {ExitKind.OUT_OF_MEMORY, ExitKind.INFRASTRUCTURE}
    return exit_.kind in again and attempts_left(attempt, retries, preemptions)


def attempts_left(attempt: int, retries: int, preemptions: int) -> bool:
    """Whether *attempt* may be followed by another; being preempted costs none."""
    return attempt - preemptions <= retries


def after_out_of_memory(demand: Demand, peak_bytes: int | None) -> int:
    """Host memory for the next attempt, in bytes: half as much again as was not enough."""
    return round(max(demand.host_memory_bytes, peak_bytes or 0) * RETRY_FACTOR)
