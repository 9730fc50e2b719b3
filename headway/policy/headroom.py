"""headroom = capacity - max(reserve, foreign use) - Σ over leases max(granted, own use).

Foreign use is whatever is in use beyond what the leases' own containers are
known to hold. The reserve is held back for it (the system, a driver, people's
own programs), so it counts as far as it exceeds the reserve. Where nobody can
say what a container holds (a driver without figures for each process, an engine
that is silent), its use counts as foreign beside its grant: too little headroom
keeps a run waiting, too much has others killed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from headway.model.lease import GpuHeadroom, Headroom, Lease, Sharing
from headway.model.node import Gpu, GpuReading, Node, NodeReading, NodeState


def compute_headroom(
    node: Node, leases: Sequence[Lease], reading: NodeReading | None = None
) -> Headroom:
    """What may still be promised on *node*.

    The leases are the truth; a reading can only make headroom smaller. What is
    in use on the host is what could not be given to a new process (total minus
    available): not the page cache. Of the disk, what a job has written already
    counts twice, as used and as promised: what it will still write is not known.

    Args:
        node: Capacity, reserve and state.
        leases: Every unreleased lease of the node, expired ones too.
        reading: The node now; None to go by the ledger alone.

    Returns:
        Bytes, CPUs and GPUs that a new lease may take; negative after a run
        has outgrown its lease. GPUs that could not be read, and those that are
        lost, offer nothing.
    """
    gpu_error = ""
    readings: dict[str, GpuReading] | None = None
    if reading is not None:
        gpu_error = reading.gpu_error if reading.gpus is None else ""
        readings = {gpu.uuid: gpu for gpu in reading.gpus or ()}
    return Headroom(
        node=node.name,
        host_memory_bytes=_left(
            node.capacity.host_memory_bytes,
            node.reserve.host_memory_bytes,
            granted=_by_run((lease.run_id, lease.host_memory_bytes) for lease in leases),
            used_bytes=reading.host.used_bytes if reading is not None else 0,
            own=reading.run_host_bytes if reading is not None else {},
        ),
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
        closed_reason=closed_reason(node),
    )


def lost_gpus(node: Node, reading: NodeReading | None) -> tuple[str, ...]:
    """Each GPU of *node* that fell off the bus, with the cause: ``gpu1 lost: …``."""
    gone = reading.lost_gpus if reading is not None else {}
    return tuple(
        f"gpu{gpu.index} lost: {gone[gpu.uuid]}" for gpu in node.capacity.gpus if gpu.uuid in gone
    )


def closed_reason(node: Node) -> str:
    """Why *node* takes no new runs; empty when it does."""
    if node.state is NodeState.READY:
        return ""
    return f"node {node.name} is {node.state.value}" + (
        f" ({node.state_reason})" if node.state_reason else ""
    )


def empty_host_bytes(node: Node, reading: NodeReading | None) -> int:
    """Host memory that *node* could give if nothing of this site ran there.

    Foreign use counts a quarter more than it is now: it moves, and a guess
    made of all that is left would wait for the last bytes of it.
    """
    foreign_bytes = 0
    if reading is not None:
        own_bytes = sum(reading.run_host_bytes.values())
        foreign_bytes = max(reading.host.used_bytes - own_bytes, 0) * 5 // 4
    held_back_bytes = max(node.reserve.host_memory_bytes, foreign_bytes)
    return max(node.capacity.host_memory_bytes - held_back_bytes, 0)


def _left(
    capacity_bytes: int,
    reserve_bytes: int,
    *,
    granted: Mapping[str, int],
    used_bytes: int,
    own: Mapping[str, int],
) -> int:
    """Bytes that may still be promised, by what each run was *granted* and is known to hold.

    What a run without a lease holds is foreign: its container should be gone.
    """
    foreign_bytes = max(used_bytes - sum(own.get(run, 0) for run in granted), 0)
    held_bytes = sum(max(bytes_, own.get(run, 0)) for run, bytes_ in granted.items())
    return capacity_bytes - held_bytes - max(reserve_bytes, foreign_bytes)


def _by_run(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    held: dict[str, int] = {}
    for run_id, bytes_ in pairs:
        held[run_id] = held.get(run_id, 0) + bytes_
    return held


def gpu_bytes_of_runs(reading: GpuReading) -> dict[str, int]:
    """GPU memory that this site's processes hold, by run, where the driver tells."""
    return _by_run(
        (each.run_id, each.memory_bytes)
        for each in reading.processes
        if each.run_id and each.memory_bytes is not None
    )


def _gpu_headroom(
    gpu: Gpu, leases: Iterable[Lease], readings: dict[str, GpuReading] | None
) -> GpuHeadroom:
    held = [(it.run_id, grant) for it in leases for grant in it.gpus if grant.uuid == gpu.uuid]
    seen = readings[gpu.uuid] if readings is not None else None
    own = gpu_bytes_of_runs(seen) if seen is not None else {}
    # Of an empty GPU, what is still shown is of a job that has just ended.
    used_frac = seen.utilisation_frac or 0.0 if seen is not None and held else 0.0
    foreign = seen is not None and _strangers(gpu, seen, {run_id for run_id, _ in held}, own)
    return GpuHeadroom(
        uuid=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        memory_bytes=_left(
            gpu.memory_bytes,
            gpu.reserve_bytes,
            granted=_by_run((run_id, grant.memory_bytes) for run_id, grant in held),
            used_bytes=seen.used_bytes if seen is not None else 0,
            own=own,
        ),
        idle=not held and not foreign,
        utilisation_frac=max(sum(grant.utilisation_frac for _, grant in held), used_frac),
        whole_bytes=gpu.memory_bytes - gpu.reserve_bytes,
        taken_whole=any(grant.sharing is Sharing.WHOLE for _, grant in held),
        foreign=foreign,
    )


def _strangers(gpu: Gpu, seen: GpuReading, runs: set[str], own: Mapping[str, int]) -> bool:
    """Whether somebody other than *runs*, who have leases on *gpu*, is on it.

    Where a run's own use is not known, the processes there are taken to be its.
    """
    if not runs:
        return bool(seen.processes) or seen.used_bytes - seen.driver_bytes > gpu.reserve_bytes
    known_bytes = sum(own.get(run_id, 0) for run_id in runs)
    more_bytes = seen.used_bytes - seen.driver_bytes - known_bytes
    return all(run_id in own for run_id in runs) and more_bytes > gpu.reserve_bytes
