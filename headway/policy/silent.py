"""Silent failures: a run that goes on, but not as its lease means it to."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.model.lease import Lease
from headway.model.telemetry import TelemetryPoint
from headway.units import format_duration, format_size

UNUSED_FRAC = 0.02
"""Below this mean utilisation a GPU counts as not used."""
STARVED_FRAC = 0.3
"""Below this mean utilisation a GPU that is used waits more than it works."""
BUSY_HOST_FRAC = 0.8
"""Of the CPUs that a lease has: above it, the data loader is what the GPU waits for."""
FEWEST_S = 300
"""Seconds that must have been seen: starting up and loading data take a while."""


class Silent(enum.StrEnum):
    """What goes wrong without an error."""

    GPU_UNUSED = "gpu_unused"
    """It holds a GPU and computes elsewhere: the CPU-fallback trap."""
    OVER_GRANT = "over_grant"
    """It holds more GPU memory than it was granted; what others were promised may not be there."""
    STARVED = "starved"
    """Its GPU waits for its processors: the data loader is too slow."""


@dataclass(frozen=True, slots=True)
class SilentFailure:
    """One silent failure of one run on one GPU, with what was measured."""

    kind: Silent
    run_id: str
    gpu: str
    measured: float
    """Mean utilisation 0..1, or bytes for `OVER_GRANT`."""
    limit: float
    """What it was compared with, in the same unit."""
    text: str
    """One sentence with the numbers and the next step."""


def silent_failures(
    lease: Lease,
    points: Mapping[str, Sequence[TelemetryPoint]],
    *,
    cpu_used: float | None,
) -> list[SilentFailure]:
    """What goes wrong silently in the run that holds *lease*.

    Only a GPU that no other run has memory on is judged by its utilisation, as
    NVML does not say whose kernels run. Nothing is said of utilisation before
    `FEWEST_S` seconds of points, nor where the driver does not tell it.

    Args:
        lease: With its GPUs.
        points: Of each GPU by uuid, one a second since the grant, oldest first.
        cpu_used: Processors that the run used on average meanwhile; None when unknown.
    """
    found = []
    for grant in lease.gpus:
        seen = points.get(grant.uuid, ())
        held = seen[-1].run_bytes.get(lease.run_id, 0) if seen else 0
        if held > grant.memory_bytes:
            found.append(_over(lease.run_id, grant.uuid, held, grant.memory_bytes))
        busy = [point.busy_frac for point in seen if point.busy_frac is not None]
        alone = all(set(point.run_bytes) <= {lease.run_id} for point in seen)
        if len(busy) < FEWEST_S or not alone:
            continue
        mean_frac = sum(busy) / len(busy)
        if mean_frac < UNUSED_FRAC:
            found.append(_unused(lease.run_id, grant.uuid, mean_frac, len(busy)))
        elif (
            mean_frac < STARVED_FRAC
            and cpu_used is not None
            and cpu_used >= BUSY_HOST_FRAC * lease.cpus
        ):
            found.append(_starved(lease, grant.uuid, mean_frac, cpu_used))
    return found


def _over(run_id: str, gpu: str, held: int, granted: int) -> SilentFailure:
    text = (
        f"holds {format_size(held)} on {gpu}, was granted {format_size(granted)}; others may run "
        "out of memory. Raise resources.gpu_memory"
    )
    return SilentFailure(Silent.OVER_GRANT, run_id, gpu, held, granted, text)


def _unused(run_id: str, gpu: str, mean_frac: float, seen_s: float) -> SilentFailure:
    text = (
        f"holds {gpu}, which was {mean_frac:.1%} busy over {format_duration(seen_s)}; it may run "
        "on the CPU. See that the framework finds the GPU (CUDA build, driver)"
    )
    return SilentFailure(Silent.GPU_UNUSED, run_id, gpu, mean_frac, UNUSED_FRAC, text)


def _starved(lease: Lease, gpu: str, mean_frac: float, cpu_used: float) -> SilentFailure:
    text = (
        f"{gpu} is {mean_frac:.0%} busy while {cpu_used:.1f} of {lease.cpus:g} CPUs are used; "
        "the GPU waits for data. Raise resources.cpus and the number of loading threads"
    )
    return SilentFailure(Silent.STARVED, lease.run_id, gpu, mean_frac, STARVED_FRAC, text)
