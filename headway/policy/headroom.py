"""headroom = capacity - reserve - max(promised to leases, observed in use)."""

import math
from collections.abc import Iterable, Sequence

from headway.model.lease import GpuHeadroom, Headroom, Lease, Sharing
from headway.model.node import Gpu, GpuReading, Node, NodeReading, NodeState


def compute_headroom(
    node: Node, leases: Sequence[Lease], reading: NodeReading | None = None
) -> Headroom:
    """What may still be promised on *node*.

    The leases are the truth; a reading can only make headroom smaller. What is
    observed on the host is what could not be given to a new process (total
    minus available), so it counts the jobs' own memory and everything else,
    but not the page cache. Of the disk, what a job has written already counts
    twice, as used and as promised: what it will still write is not known.

    Args:
        node: Capacity, reserve and state.
        leases: Every unreleased lease of the node, expired ones too.
        reading: The node now; None to go by the ledger alone.

    Returns:
        Bytes, CPUs and GPUs that a new lease may take; negative after a run
        has outgrown its lease. GPUs that could not be read, and those that are
        lost, offer nothing.
    """
    usable_bytes = node.capacity.host_memory_bytes - node.reserve.host_memory_bytes
    promised_bytes = sum(lease.host_memory_bytes for lease in leases)
    observed_bytes = reading.host.used_bytes if reading is not None else 0
    gpu_error = ""
    readings: dict[str, GpuReading] | None = None
    if reading is not None:
        gpu_error = reading.gpu_error if reading.gpus is None else ""
        readings = {gpu.uuid: gpu for gpu in reading.gpus or ()}
    return Headroom(
        node=node.name,
        host_memory_bytes=usable_bytes - max(promised_bytes, observed_bytes),
        cpus=node.capacity.cpus - node.reserve.cpus - sum(lease.cpus for lease in leases),
        gpus=()
        if gpu_error
        else tuple(
            _gpu_headroom(gpu, leases, readings)
            for gpu in node.capacity.gpus
            if readings is None or gpu.uuid in readings
        ),
        gpu_error=gpu_error,
        lost_gpus=lost_gpus(node, reading),
        disk_bytes=math.inf
        if reading is None
        else reading.host.disk_free_bytes - sum(lease.disk_bytes for lease in leases),
        ports_taken=tuple(sorted(port for lease in leases for port in lease.ports)),
        closed_reason=_closed(node),
    )


def lost_gpus(node: Node, reading: NodeReading | None) -> tuple[str, ...]:
    """Each GPU of *node* that fell off the bus, with the cause: ``gpu1 lost: …``."""
    gone = reading.lost_gpus if reading is not None else {}
    return tuple(
        f"gpu{gpu.index} lost: {gone[gpu.uuid]}" for gpu in node.capacity.gpus if gpu.uuid in gone
    )


def _closed(node: Node) -> str:
    if node.state is NodeState.READY:
        return ""
    return f"node {node.name} is {node.state.value}" + (
        f" ({node.state_reason})" if node.state_reason else ""
    )


def _gpu_headroom(
    gpu: Gpu, leases: Iterable[Lease], readings: dict[str, GpuReading] | None
) -> GpuHeadroom:
    grants = [grant for lease in leases for grant in lease.gpus if grant.uuid == gpu.uuid]
    usable_bytes = gpu.memory_bytes - gpu.reserve_bytes
    promised_bytes = sum(grant.memory_bytes for grant in grants)
    used_bytes, used_frac, strangers = 0, 0.0, False
    if readings is not None:
        used_bytes = readings[gpu.uuid].used_bytes
        # Of an empty GPU, what is still shown is of a job that has just ended.
        used_frac = readings[gpu.uuid].utilisation_frac or 0.0 if grants else 0.0
        # Without a lease, whatever holds memory beyond the reserve is not ours.
        strangers = not grants and (
            bool(readings[gpu.uuid].processes) or used_bytes > gpu.reserve_bytes
        )
    return GpuHeadroom(
        uuid=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        memory_bytes=usable_bytes - max(promised_bytes, used_bytes),
        idle=not grants and not strangers,
        utilisation_frac=max(sum(grant.utilisation_frac for grant in grants), used_frac),
        whole_bytes=usable_bytes,
        taken_whole=any(grant.sharing is Sharing.WHOLE for grant in grants),
    )
