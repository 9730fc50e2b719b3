"""Admission: may this demand start now, must it wait, or can it never run here?"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches

from headway.model.lease import Admit, Demand, GpuGrant, Refuse, Resource, Sharing, Wait
from headway.model.node import Gpu, Node, NodeState, PortUse, is_of_type
from headway.policy.closeness import choose
from headway.policy.fit import Ask, Headroom, WaitingRun
from headway.policy.headroom import closed_reason
from headway.policy.settings import PolicySettings, Share, TeamSettings
from headway.policy.shortfall import LET_NETWORK, UNREACHED, wait_for
from headway.units import format_size

_LESS = "ask for at most that"
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""Since when a run waits does not matter to whether it fits."""


def judge(demand: Demand, headroom: Headroom) -> Admit | Wait:
    """Decide whether *demand* may start now on one node.

    Args:
        demand: What is needed; upper quantiles.
        headroom: What may still be promised. The reserve is already taken off.

    Returns:
        `Admit` with the GPUs that `closeness.choose` takes; or `Wait` naming the first
        scarce resource. Never raises: scarcity is an answer, not an error.
    """
    settings = PolicySettings(utilisation_limit=headroom.utilisation_limit)
    run: Ask = WaitingRun.of("", demand, _ANY_TIME, settings=settings)
    for short in headroom.shortfalls(run):
        return wait_for(short, run, [headroom])
    fitting = [(at, gpu) for at, gpu in headroom.suitable(run) if gpu.fits_now(run.gpu)]
    return admit(demand, headroom, choose(fitting, demand.gpus))


def admit(demand: Demand, headroom: Headroom, gpus: Iterable[int]) -> Admit:
    """What *demand* is granted of *headroom*, with the GPUs at these positions."""
    whole = demand.sharing is Sharing.WHOLE
    here = [(gpu, whole or gpu.alone) for gpu in (headroom.gpus[at] for at in gpus)]
    grants = (
        GpuGrant(
            uuid=gpu.uuid,
            memory_bytes=gpu.whole_bytes if has_it_alone else demand.gpu_memory_bytes,
            sharing=Sharing.WHOLE if has_it_alone else Sharing.SHARED,
            utilisation_frac=demand.gpu_utilisation_frac,
        )
        for gpu, has_it_alone in here
    )
    return Admit(headroom.name, tuple(grants))


def possible(demand: Demand, nodes: Sequence[Node], *, count: int = 1) -> Refuse | None:
    """What of *demand* no node could ever hold, even empty; None when *count* nodes could.

    A node's state does not count: what fits only a drained node waits for it.
    """
    lacks = [_lack(demand, node, alone=count == 1) for node in nodes]
    able = lacks.count(None)
    if not nodes or able >= count:
        return None
    if able:
        which = "is" if able == 1 else "are"
        there = f"there {which} {able} that could take a part of it; ask for at most that"
        return Refuse("resources.nodes", count, there)
    # The node that comes closest has the most useful thing to say.
    closest = max((each for each in lacks if each is not None), key=lambda each: each[:2])[2]
    if closest.field == "resources.gpu_type":
        gpus = [gpu for node in nodes for gpu in node.capacity.gpus]
        return replace(closest, allowed=_known_types(demand.gpu_type, gpus))
    return closest


def over_quota(
    demand: Demand, team: str, limits: TeamSettings, *, count: int, user: str = ""
) -> Refuse | None:
    """What of *demand*, on each of *count* nodes, *user* of *team* may never hold; None if all.

    Else the run would wait for ever, since nothing that its team gives back is enough.
    """
    refused = _over_share(demand, "team", team, limits, count=count)
    if refused is not None or not user:
        return refused
    return _over_share(demand, "user", user, limits.user(user), count=count)


def _over_share(
    demand: Demand, kind: str, name: str, limits: Share, *, count: int
) -> Refuse | None:
    if limits.max_running is not None and limits.max_running < 1:
        field = "team" if kind == "team" else "owner"
        return Refuse(
            field,
            name,
            "its quota is 0, so none of its runs may start; ask your operator for a larger one",
        )
    most = limits.max_gpus
    if most is not None and demand.gpus * count > most:
        allowed = f"{kind} {name} may hold {most} at once; ask for at most that"
        return Refuse("resources.gpus", demand.gpus * count, allowed)
    most_bytes = limits.max_host_memory_bytes
    if most_bytes is not None and demand.host_memory_bytes * count > most_bytes:
        asked = format_size(demand.host_memory_bytes * count)
        allowed = f"{kind} {name} may hold {format_size(most_bytes)} at once; ask for at most that"
        return Refuse("resources.host_memory", asked, allowed)
    return None


def too_many_waiting(
    more: int, waiting: Sequence[int], team: str, limits: TeamSettings, *, user: str
) -> Refuse | None:
    """Why *more* runs of *user* may not come to those of *team* that wait; None where they may.

    Else one team's line would be every pass's work, and push back what others were promised.

    Args:
        more: Runs, and members of arrays.
        waiting: So many wait already, of the team and of the user.
        team: The user's.
        limits: The team's.
        user: Who submits them.
    """
    own = limits.user(user).max_waiting
    bounds = (("team", team, limits.max_waiting), ("user", user, own))
    for (kind, name, most), there in zip(bounds, waiting, strict=True):
        if there + more > most:
            allowed = (
                f"{kind} {name} may have {most:,} waiting, members of arrays with them, and has "
                f"{there:,}; cancel some, or submit more when these have started"
            )
            return Refuse("owner" if kind == "user" else "team", name, allowed)
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
    fit = [
        one
        for one in nodes
        if only in ("", one.name) and _lack(demand, one, alone=count == 1) is None
    ]
    closed = [one for one in fit if one.state is not NodeState.READY]
    if not closed or len(fit) - len(closed) >= count:
        return None
    why = "; ".join(closed_reason(one) for one in closed[:3])
    return Wait(Resource.NODE, why)


_Lack = tuple[int, float, Refuse]
"""How many checks a node passed, how much it has of what it lacks, and what is said of that."""


def _lack(demand: Demand, node: Node, *, alone: bool) -> _Lack | None:
    """What *node* lacks of *demand* even when it is empty."""
    capacity, reserve = node.capacity, node.reserve
    usable_bytes = capacity.host_memory_bytes - reserve.host_memory_bytes
    if demand.host_memory_bytes > usable_bytes:
        held = ""
        if demand.host_memory_bytes <= capacity.host_memory_bytes:
            held = f" after its reserve of {format_size(reserve.host_memory_bytes)}"
        asked = format_size(demand.host_memory_bytes)
        most = f"largest node {node.name} has {format_size(usable_bytes)}{held}; {_LESS}"
        return 0, usable_bytes, Refuse("resources.host_memory", asked, most)
    cpus = capacity.cpus - reserve.cpus
    if demand.cpus > cpus:
        most = f"largest node {node.name} has {cpus:g}; {_LESS}"
        return 1, cpus, Refuse("resources.cpus", demand.cpus, most)
    if demand.ports and alone and node.ports.use is PortUse.NONE:
        how = f"none for node {node.name}: {UNREACHED}. Ask your operator to {LET_NETWORK}"
        return 6, 0.0, Refuse("ports", [port or "that of a session" for port in demand.ports], how)
    return _gpu_lack(demand, node) if demand.gpus else None


def _gpu_lack(demand: Demand, node: Node) -> _Lack | None:
    gpus = node.capacity.gpus
    if not gpus:  # further away than a node with others
        return 2, 0, Refuse("resources.gpus", demand.gpus, "no node has a GPU: leave gpus out")
    matching = [gpu for gpu in gpus if is_of_type(demand.gpu_type, gpu.name)]
    if not matching:
        known = _known_types(demand.gpu_type, gpus)
        return 3, len(gpus), Refuse("resources.gpu_type", demand.gpu_type, known)
    best = max(matching, key=_usable_bytes, default=None)
    if best is not None and _usable_bytes(best) < demand.gpu_memory_bytes:
        most = (
            f"the largest GPU of {node.name} ({best.name}) has {format_size(_usable_bytes(best))} "
            f"after its reserve of {format_size(best.reserve_bytes)}; {_LESS}"
        )
        asked = format_size(demand.gpu_memory_bytes)
        largest_bytes = max(_usable_bytes(gpu) for gpu in gpus)
        return 5, largest_bytes, Refuse("resources.gpu_memory", asked, most)
    large = sum(_usable_bytes(gpu) >= demand.gpu_memory_bytes for gpu in matching)
    if large < demand.gpus:
        most = f"largest node {node.name} has {large} that would do; {_LESS}"
        return 4, len(gpus), Refuse("resources.gpus", demand.gpus, most)
    return None


def _usable_bytes(gpu: Gpu) -> int:
    return gpu.memory_bytes - gpu.reserve_bytes


def _known_types(asked: str, gpus: Sequence[Gpu]) -> str:
    names = sorted({gpu.name for gpu in gpus})
    words = {word.lower(): word for name in names for word in name.replace("-", " ").split()}
    words = {word: name for word, name in words.items() if word[0].isalpha()}  # 80GB is a size
    near = get_close_matches(asked.lower(), list(words), n=1, cutoff=0.5)
    hint = f"did you mean {words[near[0]]}? " if near else ""
    return f"{hint}this site has {', '.join(names)}"
