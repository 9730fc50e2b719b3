"""headroom = capacity - max(reserve, foreign use) - Σ over leases max(granted, own use).

Foreign use is whatever is in use beyond what the leases' own containers are
known to hold. The reserve is held back for it (the system, a driver, people's
own programs), so it counts as far as it exceeds the reserve. Where nobody can
say what a container holds (a driver without figures for each process, an engine
that is silent), its use counts as foreign beside its grant: too little headroom
keeps a run waiting, too much has others killed.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from headway.model.lease import ANY_PORT, GpuGrant, Lease, Sharing
from headway.model.node import Gpu, GpuReading, MemoryMeans, Node, NodeReading, NodeState, PortUse
from headway.policy.fit import Headroom, one_port
from headway.policy.room import Need, Occupant, Room
from headway.policy.strangers import told_strangers


def compute_headroom(
    node: Node,
    leases: Sequence[Lease],
    reading: NodeReading | None = None,
    *,
    utilisation_limit: float = 1.0,
    end_s: Callable[[Lease], float] = lambda _lease: math.inf,
) -> Headroom:
    """What may still be promised on *node*, and who has the rest until when.

    The leases are the truth; a reading can only make headroom smaller. What is
    in use on the host is what could not be given to a new process (total minus
    available): not the page cache. Of the disk, what a job has written already
    counts twice, as used and as promised: what it will still write is not known.

    Args:
        node: Capacity, reserve and state.
        leases: Every unreleased lease of the node, expired ones too.
        reading: The node now; None to go by the ledger alone.
        utilisation_limit: See `Headroom`.
        end_s: When the run of a lease is expected to end.

    Returns:
        Bytes, CPUs and GPUs that a new lease may take. GPUs that could not be
        read, and those that are lost or drained, offer nothing.
    """
    capacity, reserve = node.capacity, node.reserve
    held = [(lease, _occupant(lease, end_s(lease))) for lease in leases]
    own = reading.run_host_bytes if reading is not None else {}
    host = Room(
        whole_bytes=capacity.host_memory_bytes - reserve.host_memory_bytes,
        load_limit=capacity.cpus - reserve.cpus,
        free_bytes=_left(
            capacity.host_memory_bytes,
            reserve.host_memory_bytes,
            granted=_by_run((lease.run_id, lease.host_memory_bytes) for lease in leases),
            used_bytes=reading.host.used_bytes if reading is not None else 0,
            own=own,
        ),
        load=sum(lease.cpus for lease in leases),
        occupants=sorted(occupant for _, occupant in held),
        is_gpu=False,
    )
    gpus = [_gpu_room(gpu, held, seen, utilisation_limit) for gpu, seen in _seen(node, reading)]
    return Headroom(
        node.name,
        host,
        gpus,
        ports=_port_rooms(node, held, reading.busy_ports if reading is not None else ()),
        port_use=node.ports.use,
        disk_bytes=math.inf
        if reading is None
        else reading.host.disk_free_bytes - sum(lease.disk_bytes for lease in leases),
        closed=closed_reason(node) or (reading.closed if reading is not None else ""),
        gpu_error=reading.gpu_error if reading is not None and reading.gpus is None else "",
        lost_gpus=lost_gpus(node, reading),
        strangers=_strangers(gpus, reading),
        utilisation_limit=utilisation_limit,
    )


def _port_rooms(
    node: Node, held: Iterable[tuple[Lease, Occupant]], busy: Iterable[int]
) -> dict[int, Room]:
    """The ports of *node* that leases have, each as a room; at `ANY_PORT` all that it may give.

    Where a program listens at the node's own ports, those that are *busy* with others' are full.
    """
    free = node.ports.free
    count = free.last - free.first + 1
    rooms = {ANY_PORT: Room(count, 0.0, count, is_gpu=False)}
    for lease, occupant in held:
        given = [port for port in lease.ports.values() if port in free]
        if given:
            rooms[ANY_PORT].enter(occupant._replace(need=Need(len(given), 0.0)))
        for port in lease.ports.values():
            room = rooms.setdefault(port, one_port(port))
            room.enter(occupant._replace(need=Need(1, 0.0)))
    if node.ports.use is PortUse.BOUND:
        for port in set(busy) - rooms.keys():
            rooms[port] = Room(1, 0.0, 0, index=port, is_gpu=False)
    return rooms


def _seen(node: Node, reading: NodeReading | None) -> list[tuple[Gpu, GpuReading | None]]:
    """Those of *node* that take runs and can be read, each with its reading; or None."""
    gpus = [gpu for gpu in node.capacity.gpus if gpu.uuid not in node.gpu_drains]
    if reading is None:
        return [(gpu, None) for gpu in gpus]
    readings = {gpu.uuid: gpu for gpu in reading.gpus or ()}
    return [(gpu, readings[gpu.uuid]) for gpu in gpus if gpu.uuid in readings]


def _occupant(lease: Lease, end_s: float) -> Occupant:
    need = Need(lease.host_memory_bytes, lease.cpus)
    return Occupant(end_s, lease.run_id, lease.granted_at.timestamp(), end_s, need)


def grant_need(grant: GpuGrant, *, alone: bool = False) -> Need:
    """What *grant* takes of its GPU, where each run is *alone* or may share it."""
    whole = alone or grant.sharing is Sharing.WHOLE
    return Need(grant.memory_bytes, grant.utilisation_frac, whole)


def lost_gpus(node: Node, reading: NodeReading | None) -> tuple[str, ...]:
    """Each GPU of *node* that takes no runs, with the cause: ``gpu1 drained: …``."""
    gone = reading.lost_gpus if reading is not None else {}
    told = {uuid: f"lost: {cause}" for uuid, cause in gone.items()}
    told |= {uuid: f"drained: {drain.told}" for uuid, drain in node.gpu_drains.items()}
    return tuple(
        f"gpu{gpu.index} {told[gpu.uuid]}" for gpu in node.capacity.gpus if gpu.uuid in told
    )


def _strangers(rooms: Iterable[Room], reading: NodeReading | None) -> tuple[str, ...]:
    """Where a run that has just ended is all that is left on a GPU, there are none."""
    read = (reading.gpus or ()) if reading is not None else ()
    unnamed = "in use by programs that the driver does not name"
    told = {gpu.uuid: unnamed for gpu in read if not gpu.processes} | dict(told_strangers(reading))
    return tuple(
        f"gpu{room.index} {told[room.uuid]}" for room in rooms if room.foreign and room.uuid in told
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


def _gpu_room(
    gpu: Gpu,
    held: Iterable[tuple[Lease, Occupant]],
    seen: GpuReading | None,
    utilisation_limit: float,
) -> Room:
    here = [
        (occupant, grant)
        for lease, occupant in held
        for grant in lease.gpus
        if grant.uuid == gpu.uuid
    ]
    own = gpu_bytes_of_runs(seen) if seen is not None else {}
    # Of an empty GPU, what is still shown is of a job that has just ended.
    used_frac = seen.utilisation_frac or 0.0 if seen is not None and here else 0.0
    runs = {occupant.run_id for occupant, _ in here}
    alone = not memory_means(gpu, seen).shares
    return Room(
        whole_bytes=gpu.memory_bytes - gpu.reserve_bytes,
        load_limit=utilisation_limit,
        free_bytes=_left(
            gpu.memory_bytes,
            gpu.reserve_bytes,
            granted=_by_run((occupant.run_id, grant.memory_bytes) for occupant, grant in here),
            used_bytes=seen.used_bytes if seen is not None else 0,
            own=own,
        ),
        load=max(sum(grant.utilisation_frac for _, grant in here), used_frac),
        foreign=seen is not None and _has_foreign_processes(gpu, seen, runs, own),
        occupants=sorted(
            occupant._replace(need=grant_need(grant, alone=alone)) for occupant, grant in here
        ),
        index=gpu.index,
        product=gpu.name,
        uuid=gpu.uuid,
        distances=gpu.distances,
        alone=alone,
    )


def memory_means(gpu: Gpu, seen: GpuReading | None) -> MemoryMeans:
    """By what runs are kept to their memory of *gpu* now: who is watched has to be seen."""
    is_blind = seen is not None and any(each.memory_bytes is None for each in seen.processes)
    return MemoryMeans.WHOLE if gpu.kept_by is MemoryMeans.WATCH and is_blind else gpu.kept_by


def _has_foreign_processes(
    gpu: Gpu, seen: GpuReading, runs: set[str], own: Mapping[str, int]
) -> bool:
    """Whether somebody other than *runs*, who have leases on *gpu*, is on it.

    Where a run's own use is not known, the processes there are taken to be its.
    """
    if not runs:
        return bool(seen.processes) or seen.program_bytes > gpu.reserve_bytes
    known_bytes = sum(own.get(run_id, 0) for run_id in runs)
    more_bytes = seen.program_bytes - known_bytes
    return all(run_id in own for run_id in runs) and more_bytes > gpu.reserve_bytes
