"""Admission: may this demand start now, must it wait, or can it never run here?"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches

from headway.model.lease import Admit, Demand, GpuGrant, Refuse, Resource, Sharing, Wait
from headway.model.node import Gpu, Node, NodeState, is_of_type
from headway.policy.fit import Headroom, WaitingRun
from headway.policy.headroom import closed_reason
from headway.policy.settings import PolicySettings, TeamSettings
from headway.policy.shortfall import wait_for
from headway.units import format_size

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""Since when a run waits does not matter to whether it fits."""


def judge(demand: Demand, headroom: Headroom) -> Admit | Wait:
    """Decide whether *demand* may start now on one node.

    Args:
        demand: What is needed; upper quantiles.
        headroom: What may still be promised. The reserve is already taken off.

    Returns:
        `Admit` with the GPUs chosen, those with the least memory left first; or
        `Wait` naming the first scarce resource. Never raises: scarcity is an
        answer, not an error.
    """
    settings = PolicySettings(utilisation_limit=headroom.utilisation_limit)
    run = WaitingRun.of("", demand, _ANY_TIME, settings=settings)
    for short in headroom.shortfalls(run):
        return wait_for(short, run, [headroom])
    fitting = [(gpu.free_bytes, at) for at, gpu in headroom.suitable(run) if gpu.fits_now(run.gpu)]
    return admit(demand, headroom, (at for _, at in sorted(fitting)[: demand.gpus]))


def admit(demand: Demand, headroom: Headroom, gpus: Iterable[int]) -> Admit:
    """What *demand* is granted of *headroom*, with the GPUs at these positions."""
    whole = demand.sharing is Sharing.WHOLE
    grants = (
        GpuGrant(
            uuid=gpu.uuid,
            memory_bytes=gpu.whole_bytes if whole else demand.gpu_memory_bytes,
            sharing=demand.sharing,
            utilisation_frac=demand.gpu_utilisation_frac,
        )
        for gpu in (headroom.gpus[at] for at in gpus)
    )
    return Admit(headroom.name, tuple(grants))


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
    why = "; ".join(closed_reason(one) for one in closed[:3])
    return Wait(Resource.NODE, why)


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
    matching = [gpu for gpu in gpus if is_of_type(demand.gpu_type, gpu.name)]
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
