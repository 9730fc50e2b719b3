"""Admission: may this demand start now, must it wait, or can it never run here?"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from headway.model.lease import (
    Admit,
    Demand,
    GpuGrant,
    GpuHeadroom,
    Headroom,
    Refuse,
    Resource,
    Sharing,
    Wait,
)
from headway.model.node import Gpu, Node, NodeState, is_of_type
from headway.policy.headroom import compute_headroom
from headway.policy.settings import TeamSettings
from headway.units import format_size


def judge(demand: Demand, headroom: Headroom, *, utilisation_limit: float = 1.0) -> Admit | Wait:
    """Decide whether *demand* may start now on one node.

    Args:
        demand: What is needed; upper quantiles.
        headroom: What may still be promised. The reserve is already taken off.
        utilisation_limit: Jobs share a GPU while their utilisations add up to
            at most this.

    Returns:
        `Admit` with the GPUs chosen, best fit first; or `Wait` naming the
        first scarce resource and the shortfall. Never raises: scarcity is an
        answer, not an error.
    """
    for wait in _host_waits(demand, headroom):
        return wait
    if demand.gpus == 0:
        return Admit(headroom.node)
    if headroom.gpu_error:
        return Wait(Resource.GPUS, demand.gpus, f"the GPUs cannot be read: {headroom.gpu_error}")
    fitting = sorted(
        (gpu for gpu in headroom.gpus if _fits(demand, gpu, utilisation_limit)),
        key=lambda gpu: (gpu.memory_bytes, gpu.index),
    )
    if len(fitting) < demand.gpus:
        wait = _gpu_wait(demand, headroom, len(fitting), utilisation_limit)
        return replace(wait, reason="; ".join((wait.reason, *headroom.lost_gpus)))
    return Admit(headroom.node, tuple(_grant(demand, gpu) for gpu in fitting[: demand.gpus]))


def _host_waits(demand: Demand, headroom: Headroom) -> Iterator[Wait]:
    if headroom.closed_reason:
        yield Wait(Resource.NODE, 1, headroom.closed_reason)
    short_bytes = demand.host_memory_bytes - headroom.host_memory_bytes
    if short_bytes > 0:
        yield Wait(
            Resource.HOST_MEMORY,
            short_bytes,
            f"needs {format_size(demand.host_memory_bytes)} of host memory; the headroom of "
            f"{headroom.node} is {format_size(max(headroom.host_memory_bytes, 0))}",
        )
    if demand.cpus > headroom.cpus + 1e-9:
        yield Wait(
            Resource.CPUS,
            demand.cpus - headroom.cpus,
            f"needs {demand.cpus:g} CPUs; the headroom of {headroom.node} is "
            f"{max(headroom.cpus, 0):g}",
        )
    if demand.disk_bytes > headroom.disk_bytes:
        yield disk_wait(demand.disk_bytes, headroom.disk_bytes, headroom.node)
    taken = sorted(set(demand.ports) & set(headroom.ports_taken))
    if taken:
        yield Wait(
            Resource.PORTS, len(taken), f"needs port {taken[0]}, which a run on {headroom.node} has"
        )


def disk_wait(needed_bytes: int, free_bytes: float, node: str) -> Wait:
    """What is said of a disk that is too full."""
    return Wait(
        Resource.NODE,
        needed_bytes - free_bytes,
        f"needs {format_size(needed_bytes)} of disk; the largest headroom is "
        f"{format_size(max(int(free_bytes), 0))} on {node}",
    )


def _is_of_type(demand: Demand, name: str) -> bool:
    return is_of_type(demand.gpu_type, name)


def _fits(demand: Demand, gpu: GpuHeadroom, utilisation_limit: float) -> bool:
    if not _is_of_type(demand, gpu.name) or gpu.taken_whole:
        return False
    if demand.sharing is Sharing.WHOLE:
        return gpu.idle and demand.gpu_memory_bytes <= gpu.whole_bytes
    if demand.gpu_memory_bytes > gpu.memory_bytes or gpu.memory_bytes <= 0:
        return False
    # An empty GPU takes anybody: a limit below one job's own utilisation starves it.
    fits = gpu.utilisation_frac + demand.gpu_utilisation_frac <= utilisation_limit + 1e-9
    return gpu.utilisation_frac == 0 or fits


def _grant(demand: Demand, gpu: GpuHeadroom) -> GpuGrant:
    whole = demand.sharing is Sharing.WHOLE
    return GpuGrant(
        uuid=gpu.uuid,
        memory_bytes=gpu.whole_bytes if whole else demand.gpu_memory_bytes,
        sharing=demand.sharing,
        utilisation_frac=demand.gpu_utilisation_frac,
    )


def _gpu_wait(demand: Demand, headroom: Headroom, fitting: int, utilisation_limit: float) -> Wait:
    matching = [gpu for gpu in headroom.gpus if _is_of_type(demand, gpu.name)]
    best = max(matching, key=lambda gpu: gpu.memory_bytes, default=None)
    each = "on one GPU" if demand.gpus == 1 else f"on each of {demand.gpus} GPUs"
    if demand.sharing is Sharing.WHOLE:
        idle = sum(gpu.idle for gpu in matching)
        return Wait(
            Resource.GPUS,
            demand.gpus - fitting,
            f"needs {demand.gpus} whole GPU(s); {idle} of {len(matching)} on {headroom.node} "
            "are free",
        )
    if best is None or best.memory_bytes >= demand.gpu_memory_bytes:
        return Wait(
            Resource.GPUS,
            demand.gpus - fitting,
            f"needs {demand.gpus} GPU(s) with room for its utilisation; {fitting} on "
            f"{headroom.node} have it (limit {utilisation_limit:g})",
        )
    return Wait(
        Resource.GPU_MEMORY,
        demand.gpu_memory_bytes - best.memory_bytes,
        f"needs {format_size(demand.gpu_memory_bytes)} {each}; the largest headroom is "
        f"{format_size(max(best.memory_bytes, 0))} on {headroom.node}/gpu{best.index}",
    )


def possible(demand: Demand, nodes: Sequence[Node], *, count: int = 1) -> Refuse | None:
    """What of *demand* no node could ever hold, even empty; None when *count* nodes could.

    A node's state does not count: what fits only a drained node waits for it.
    """
    able = sum(_refusal(demand, node) is None for node in nodes)
    if not nodes or able >= count:
        return None
    if able:
        which = "is" if able == 1 else "are"
        there = f"there {which} {able} that could take a part of it; ask for at most that"
        return Refuse("resources.nodes", count, there)
    refusals = [(_refusal(demand, node), node) for node in nodes]
    # The node that comes closest has the most useful thing to say.
    refused = [(refusal, node) for refusal, node in refusals if refusal is not None]
    closest = max(refused, key=lambda pair: _closeness(*pair))[0]
    if closest.field == "resources.gpu_type":
        gpus = [gpu for node in nodes for gpu in node.capacity.gpus]
        return replace(closest, allowed=_known_types(demand.gpu_type, gpus))
    return closest


def over_quota(demand: Demand, team: str, limits: TeamSettings, *, count: int) -> Refuse | None:
    """What of *demand*, on each of *count* nodes, *team* may never hold; None when it may.

    Else the run would wait for ever, since nothing that its team gives back is enough.
    """
    if limits.max_running is not None and limits.max_running < 1:
        return Refuse("team", team, "its quota lets it run nothing; ask your operator for one")
    most = limits.max_gpus
    if most is not None and demand.gpus * count > most:
        allowed = f"team {team} may hold {most} at once; ask for at most that"
        return Refuse("resources.gpus", demand.gpus * count, allowed)
    most_bytes = limits.max_host_memory_bytes
    if most_bytes is not None and demand.host_memory_bytes * count > most_bytes:
        asked = format_size(demand.host_memory_bytes * count)
        allowed = f"team {team} may hold {format_size(most_bytes)} at once; ask for at most that"
        return Refuse("resources.host_memory", asked, allowed)
    return None


def shut_out(demand: Demand, count: int, only: str, nodes: Sequence[Node]) -> Wait | None:
    """Why none of *nodes* that take runs now could ever hold *demand*, though closed ones could.

    Args:
        demand: On each node.
        count: Nodes it needs at once.
        only: The one node it may run on; empty for any.
        nodes: Every node of the pool.

    Returns:
        The wait; None when enough nodes that take runs could hold it.
    """
    fit = [one for one in nodes if only in ("", one.name) and _refusal(demand, one) is None]
    closed = [one for one in fit if one.state is not NodeState.READY]
    if not closed or len(fit) - len(closed) >= count:
        return None
    why = "; ".join(compute_headroom(one, (), None).closed_reason for one in closed[:3])
    return Wait(Resource.NODE, 1, why)


def _closeness(refusal: Refuse, node: Node) -> tuple[int, float]:
    """How many checks *node* passed, and how much it has of what it lacks."""
    capacity, reserve = node.capacity, node.reserve
    usable_bytes = [gpu.memory_bytes - gpu.reserve_bytes for gpu in capacity.gpus]
    closeness: dict[str, tuple[int, float]] = {
        "resources.host_memory": (0, capacity.host_memory_bytes - reserve.host_memory_bytes),
        "resources.cpus": (1, capacity.cpus - reserve.cpus),
        "resources.gpu_type": (3, len(usable_bytes)),
        # A node without any GPU is further away than one with others.
        "resources.gpus": (4 if usable_bytes else 2, len(usable_bytes)),
        "resources.gpu_memory": (5, max(usable_bytes, default=0)),
    }
    return closeness[refusal.field]


def _refusal(demand: Demand, node: Node) -> Refuse | None:
    capacity, reserve = node.capacity, node.reserve
    usable_bytes = capacity.host_memory_bytes - reserve.host_memory_bytes
    if demand.host_memory_bytes > usable_bytes:
        held = ""
        if demand.host_memory_bytes <= capacity.host_memory_bytes:
            held = f" after its reserve of {format_size(reserve.host_memory_bytes)}"
        return Refuse(
            "resources.host_memory",
            format_size(demand.host_memory_bytes),
            f"largest node {node.name} has {format_size(usable_bytes)}{held}; ask for at most that",
        )
    if demand.cpus > capacity.cpus - reserve.cpus:
        return Refuse(
            "resources.cpus",
            demand.cpus,
            f"largest node {node.name} has {capacity.cpus - reserve.cpus:g}; ask for at most that",
        )
    return _gpu_refusal(demand, node) if demand.gpus else None


def _gpu_refusal(demand: Demand, node: Node) -> Refuse | None:
    gpus = node.capacity.gpus
    matching = [gpu for gpu in gpus if _is_of_type(demand, gpu.name)]
    if gpus and not matching:
        return Refuse("resources.gpu_type", demand.gpu_type, _known_types(demand.gpu_type, gpus))
    large = [g for g in matching if g.memory_bytes - g.reserve_bytes >= demand.gpu_memory_bytes]
    if matching and not large:
        best = max(matching, key=lambda gpu: gpu.memory_bytes - gpu.reserve_bytes)
        usable_bytes = best.memory_bytes - best.reserve_bytes
        return Refuse(
            "resources.gpu_memory",
            format_size(demand.gpu_memory_bytes),
            f"the largest GPU of {node.name} ({best.name}) has {format_size(usable_bytes)} after "
            f"its reserve of {format_size(best.reserve_bytes)}; ask for at most that",
        )
    if len(large) < demand.gpus:
        return Refuse(
            "resources.gpus",
            demand.gpus,
            f"largest node {node.name} has {len(large)} that would do; ask for at most that",
        )
    return None


def _known_types(asked: str, gpus: Sequence[Gpu]) -> str:
    names = sorted({gpu.name for gpu in gpus})
    words = {word.lower(): word for name in names for word in name.replace("-", " ").split()}
    near = get_close_matches(asked.lower(), list(words), n=1, cutoff=0.5)
    hint = f"did you mean {words[near[0]]}? " if near else ""
    return f"{hint}this site has {', '.join(names)}"
