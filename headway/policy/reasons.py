"""Why a run waits, in words and numbers; when it may start is told apart, by `policy.outlook`."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from headway.model.lease import Resource, Wait
from headway.policy.admission import disk_wait
from headway.policy.board import Ask, Board, NodeRooms
from headway.policy.decide import Held, Hold, Outcome
from headway.policy.room import ROUNDING
from headway.policy.settings import PolicySettings
from headway.units import format_size

_Say = Callable[[Outcome, list[NodeRooms]], Wait]
"""Words for why a run waits: its outcome and the nodes it is about."""


def explain(
    outcome: Outcome,
    board: Board,
    held: Mapping[str, Held],
    *,
    settings: PolicySettings,
) -> Wait:
    """Why the run of *outcome* waits: the scarce resource, how much is short, one sentence."""
    ask = outcome.ask
    if outcome.preempts:
        names = ", ".join(one.ask.run_id for one in outcome.preempts)
        return Wait(Resource.TURN, 0, f"starts when {names}, of a lower priority, has stopped")
    if outcome.hold is Hold.QUOTA:
        return _quota(ask, held.get(ask.team, Held()), settings)
    if outcome.hold is Hold.BARRIER and outcome.barrier is not None:
        elder = outcome.barrier
        return Wait(
            Resource.TURN,
            0,
            f"waits behind run {elder.run_id}, which at least {elder.overtaken} later runs "
            f"have passed; more than {settings.overtake_bound} may not",
        )
    if board.has_room(ask):
        return Wait(Resource.TURN, 0, "would fit now, but would delay runs ahead of it")
    return _disk(ask, board) or _room(outcome, board)


def _disk(ask: Ask, board: Board) -> Wait | None:
    """What is said when too few of the nodes that are open have room on their disk."""
    open_nodes = [node for node in board.nodes if node.takes(ask)]
    if sum(node.admits(ask) for node in open_nodes) >= min(ask.nodes, len(open_nodes)):
        return None
    roomiest = max(open_nodes, key=lambda node: (node.disk_bytes, node.name))
    return disk_wait(ask.disk_bytes, roomiest.disk_bytes, roomiest.name)


def _quota(ask: Ask, held: Held, settings: PolicySettings) -> Wait:
    limits = settings.team(ask.team)
    host_bytes = ask.host.memory_bytes * ask.nodes
    gpus = ask.gpus * ask.nodes
    team = f"team {ask.team}" if ask.team else "its team"
    if limits.max_gpus is not None and held.gpus + gpus > limits.max_gpus:
        short = held.gpus + gpus - limits.max_gpus
        text = f"needs {gpus} GPU(s); {team} holds {held.gpus} of its {limits.max_gpus}"
        return Wait(Resource.QUOTA, short, text)
    most_bytes = limits.max_host_memory_bytes
    if most_bytes is not None and held.host_memory_bytes + host_bytes > most_bytes:
        return Wait(
            Resource.QUOTA,
            held.host_memory_bytes + host_bytes - most_bytes,
            f"needs {format_size(host_bytes)} of host memory; {team} holds "
            f"{format_size(held.host_memory_bytes)} of its {format_size(most_bytes)}",
        )
    return Wait(
        Resource.QUOTA, 1, f"{team} may have {limits.max_running} run(s) at once and has them"
    )


def _room(outcome: Outcome, board: Board) -> Wait:
    ask = outcome.ask
    nodes = [node for node in board.nodes if node.admits(ask)]
    if sum(_could_hold(node, ask) for node in nodes) < ask.nodes:
        shut = [n for n in board.nodes if n.closed and (not ask.node or n.name == ask.node)]
        able = [node for node in shut if _could_hold(node, ask)]
        if able or not nodes:
            why = "; ".join(node.closed for node in (able or shut)[:3])
            missing = f"there is no node {ask.node}" if ask.node else "there is no node"
            return Wait(Resource.NODE, 1, why or f"{missing} in the pool")
    if ask.nodes > 1:
        return _with_lost(_gang(outcome, nodes), nodes)
    for lacks, say in _CHECKS:
        if all(lacks(node, ask) for node in nodes):
            return _with_lost(say(outcome, nodes), nodes)
    # Each of them is free somewhere, but nowhere all at once.
    able = [node for node in nodes if _could_hold(node, ask)] or nodes
    lacking = {n.name: [say for lacks, say in _CHECKS if lacks(n, ask)] for n in able}
    least = min(lacking.values(), key=len)
    near = [node for node in able if lacking[node.name] == least]
    wait = least[0](outcome, near)
    wait = replace(wait, reason=f"{wait.reason}, of the nodes that lack the least")
    return _with_lost(wait, near)


def _host_memory(outcome: Outcome, nodes: list[NodeRooms]) -> Wait:
    need = outcome.ask.host
    best = max(nodes, key=lambda node: (node.host.free_bytes, node.name))
    return Wait(
        Resource.HOST_MEMORY,
        need.memory_bytes - best.host.free_bytes,
        f"needs {format_size(need.memory_bytes)} of host memory; the largest headroom is "
        f"{format_size(max(best.host.free_bytes, 0))} on {best.name}",
    )


def _ports(outcome: Outcome, nodes: list[NodeRooms]) -> Wait:
    taken = min(port for node in nodes for port in outcome.ask.ports & node.ports)
    return Wait(Resource.PORTS, 1, f"needs port {taken}, which another run has")


def _cpus(outcome: Outcome, nodes: list[NodeRooms]) -> Wait:
    needed = outcome.ask.host.load
    free, where = max((node.host.load_limit - node.host.load, node.name) for node in nodes)
    return Wait(
        Resource.CPUS,
        max(needed - free, 0.0),
        f"needs {needed:g} CPU{'' if needed == 1 else 's'}; the largest headroom is "
        f"{max(free, 0):g} on {where}",
    )


def _with_lost(wait: Wait, nodes: list[NodeRooms]) -> Wait:
    """*wait*; one for GPUs with those that the run could have had if they were not lost."""
    if wait.resource not in {Resource.GPUS, Resource.GPU_MEMORY}:
        return wait
    lost = [f"{text} (on {node.name})" for node in nodes for text in node.lost_gpus]
    return replace(wait, reason="; ".join((wait.reason, *lost[:3])))


def _gang(outcome: Outcome, nodes: list[NodeRooms]) -> Wait:
    ask = outcome.ask
    ready = [
        node.name
        for node in nodes
        if node.host.fits_now(ask.host)
        and _gpus(node, ask) >= ask.gpus
        and ask.ports.isdisjoint(node.ports)
    ]
    each = f"{ask.gpus} GPU(s)" if ask.gpus else f"{format_size(ask.host.memory_bytes)}"
    have = f"{len(ready)} has" if len(ready) == 1 else f"{len(ready)} have"
    names = f" ({', '.join(ready[:3])})" if ready else ""
    return Wait(
        Resource.GPUS if ask.gpus else Resource.HOST_MEMORY,
        ask.nodes - len(ready),
        f"needs {ask.nodes} nodes at once with {each} on each; {have} room now{names}",
    )


def _could_hold(node: NodeRooms, ask: Ask) -> bool:
    """Could *node* hold *ask* if it were empty?"""
    gpus = sum(room.whole_bytes >= ask.gpu.memory_bytes for _, room in node.suitable(ask))
    host = node.host.whole_bytes >= ask.host.memory_bytes
    return host and node.host.load_limit >= ask.host.load and gpus >= ask.gpus


def _gpus(node: NodeRooms, ask: Ask) -> int:
    return sum(room.fits_now(ask.gpu) for _, room in node.suitable(ask))


def _gpu(outcome: Outcome, nodes: list[NodeRooms]) -> Wait:
    ask = outcome.ask
    rooms = [(room, node, at) for node in nodes for at, room in node.suitable(ask)]
    if not rooms:
        error = next((node.gpu_error for node in nodes if node.gpu_error), "")
        text = f"the GPUs cannot be read: {error}" if error else "no node has such a GPU now"
        return Wait(Resource.GPUS, ask.gpus, text)
    best = max(nodes, key=lambda node: (_gpus(node, ask), node.name))
    have = _gpus(best, ask)
    if ask.gpu.whole:
        text = f"needs {ask.gpus} whole GPU(s) on one node; at most {have} are free, on {best.name}"
        return Wait(Resource.GPUS, ask.gpus - have, text)
    room, node, at = max(
        rooms, key=lambda each: (not each[0].taken_whole, each[0].free_bytes, each[1].name)
    )
    free_bytes = 0 if room.taken_whole else max(room.free_bytes, 0)
    if free_bytes < ask.gpu.memory_bytes:
        each = "on one GPU" if ask.gpus == 1 else f"on each of {ask.gpus} GPUs"
        text = (
            f"needs {format_size(ask.gpu.memory_bytes)} {each}; the largest headroom is "
            f"{format_size(free_bytes)} on {node.name}/gpu{at}"
        )
        return Wait(Resource.GPU_MEMORY, ask.gpu.memory_bytes - free_bytes, text)
    text = (
        f"needs {ask.gpus} GPU(s) with room for its utilisation of {ask.gpu.load:.0%}; "
        f"{have} on {best.name} have it (limit {room.load_limit:.0%})"
    )
    return Wait(Resource.GPUS, ask.gpus - have, text)


def _lacks_cpus(node: NodeRooms, ask: Ask) -> bool:
    return node.host.load + ask.host.load > node.host.load_limit + ROUNDING


_CHECKS: tuple[tuple[Callable[[NodeRooms, Ask], bool], _Say], ...] = (
    (lambda node, ask: node.host.free_bytes < ask.host.memory_bytes, _host_memory),
    (lambda node, ask: _gpus(node, ask) < ask.gpus, _gpu),
    (lambda node, ask: not ask.ports.isdisjoint(node.ports), _ports),
    (_lacks_cpus, _cpus),
)
"""What a node may lack of what a run on one node needs, and the words for it."""
