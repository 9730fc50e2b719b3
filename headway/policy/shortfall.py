"""The sentence for each `Shortfall`: what a run needs, and the most that a node has left of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headway.model.lease import ANY_PORT, Resource, Wait
from headway.policy.fit import Ask, Headroom, Shortfall
from headway.policy.room import Room
from headway.units import format_size

UNREACHED = "its ports would lead nowhere, since containers have no network there"
LET_NETWORK = (
    "run headway as root there, so that it may set packet rules, or to change network of the "
    "block headway-container-policy/site"
)


def wait_for(short: Shortfall, ask: Ask, nodes: Sequence[Headroom]) -> Wait:
    """Why *ask* waits that has *short* on each of *nodes*, with the numbers of the best of them."""
    wait = _SENTENCES[short](ask, nodes)
    return with_lost_gpus(wait, nodes)


def with_lost_gpus(wait: Wait, nodes: Sequence[Headroom]) -> Wait:
    """*wait*; one for GPUs with those that are lost or in use by strangers, with whose that is."""
    if wait.resource not in {Resource.GPUS, Resource.GPU_MEMORY}:
        return wait
    lost = [f"{text} (on {node.name})" for node in nodes for text in node.lost_gpus]
    held = [f"{text} (on {node.name})" for node in nodes for text in node.strangers]
    return replace(wait, reason="; ".join((wait.reason, *lost[:3], *held[:3])))


def _left(free: float, told: Callable[[float], str], where: str) -> str:
    """The most that a node has left, *told* in words; less than nothing where it promised more."""
    most = f"at most {told(free)} is free for it" if free > 0 else "nothing is free for it now"
    return f"{most}, on {where}"


def _gpus_left(have: int, where: str) -> str:
    return (f"at most {have} are free" if have else "none is free now") + f", on {where}"


def _closed(ask: Ask, nodes: Sequence[Headroom]) -> Wait:
    shut = [node.closed for node in nodes if node.closed and ask.node in ("", node.name)]
    shut += [f"{UNREACHED}: {node.name}" for node in nodes if not node.reaches(ask)]
    missing = f"there is no node {ask.node}" if ask.node else "there is no node"
    return Wait(Resource.NODE, "; ".join(shut[:3]) or f"{missing} in the pool")


def _disk(ask: Ask, nodes: Sequence[Headroom]) -> Wait:
    best = max(nodes, key=lambda node: (node.disk_bytes, node.name))
    return Wait(
        Resource.NODE,
        f"needs {format_size(ask.disk_bytes)} of disk; "
        + _left(best.disk_bytes, format_size, best.name),
    )


def _host_memory(ask: Ask, nodes: Sequence[Headroom]) -> Wait:
    best = max(nodes, key=lambda node: (node.host.free_bytes, node.name))
    return Wait(
        Resource.HOST_MEMORY,
        f"needs {format_size(ask.host.memory_bytes)} of host memory; "
        + _left(best.host.free_bytes, format_size, best.name),
    )


def _ports(ask: Ask, nodes: Sequence[Headroom]) -> Wait:
    short = (
        (room, node)
        for node in nodes
        for room, need in node.port_rooms(ask)
        if not room.fits_now(need)
    )
    room, node = min(short, key=lambda each: (each[0].index, each[1].name))
    if room.index != ANY_PORT:
        whose = "another run has" if room.occupants else "a program that is no run has"
        return Wait(Resource.PORTS, f"needs port {room.index} of a node, which {whose}")
    return Wait(
        Resource.PORTS,
        f"needs {len(ask.ports)} port(s); {max(room.free_bytes, 0)} of the {room.whole_bytes} "
        f"that {node.name} may give are free",
    )


def _cpus(ask: Ask, nodes: Sequence[Headroom]) -> Wait:
    needed = ask.host.load
    free, where = max((node.host.free_load, node.name) for node in nodes)
    return Wait(
        Resource.CPUS,
        f"needs {needed:g} CPU{'' if needed == 1 else 's'}; " + _left(free, "{:g}".format, where),
    )


def _gpus(ask: Ask, nodes: Sequence[Headroom]) -> Wait:
    rooms = [(room, node) for node in nodes for _, room in node.suitable(ask)]
    if not rooms:
        error = next((node.gpu_error for node in nodes if node.gpu_error), "")
        text = f"the GPUs cannot be read: {error}" if error else "no node has such a GPU now"
        return Wait(Resource.GPUS, text)
    have, where = max((node.fitting_gpus(ask), node.name) for node in nodes)
    if ask.gpu.whole:
        text = f"needs {ask.gpus} whole GPU(s) on one node; {_gpus_left(have, where)}"
        return Wait(Resource.GPUS, text)
    room, node = max(
        rooms, key=lambda each: (not each[0].taken_whole, each[0].free_bytes, each[1].name)
    )
    free_bytes = 0 if room.taken_whole else room.free_bytes
    if free_bytes < ask.gpu.memory_bytes:
        each = "on one GPU" if ask.gpus == 1 else f"on each of {ask.gpus} GPUs"
        text = f"needs {format_size(ask.gpu.memory_bytes)} {each}; " + _left(
            free_bytes, format_size, f"{node.name}/gpu{room.index}"
        )
        return Wait(Resource.GPU_MEMORY, text + _alone(rooms))
    if all(room.alone for room, _ in rooms if room.free_bytes >= ask.gpu.memory_bytes):
        text = f"needs {ask.gpus} GPU(s) on one node; {_gpus_left(have, where)}"
        return Wait(Resource.GPUS, text + _alone(rooms))
    text = (
        f"needs {ask.gpus} GPU(s) with room for its utilisation of {ask.gpu.load:.0%}; "
        f"{have} on {where} have it (limit {room.load_limit:.0%})"
    )
    text += _alone(rooms)
    if alone := sum(room.left_alone for room, _ in rooms):
        text += f"; {alone} take(s) nobody beside a run that lasts longer than was predicted"
    return Wait(Resource.GPUS, text)


def _alone(rooms: Sequence[tuple[Room, Headroom]]) -> str:
    """Why some of *rooms* take no run beside another program."""
    taken = sum(room.alone and not room.foreign for room, _ in rooms)
    closed = sum(room.alone and room.foreign and not room.occupants for room, _ in rooms)
    text = ""
    if taken:
        text += f"; {taken} take(s) one run at a time: nobody sees what each program holds"
    if closed:
        text += (
            f"; {closed} take(s) nothing while a program that is no run's is there: nobody sees "
            "what memory it holds"
        )
    return text


_SENTENCES: Mapping[Shortfall, Callable[[Ask, Sequence[Headroom]], Wait]] = {
    Shortfall.CLOSED: _closed,
    Shortfall.DISK: _disk,
    Shortfall.HOST_MEMORY: _host_memory,
    Shortfall.GPUS: _gpus,
    Shortfall.PORTS: _ports,
    Shortfall.CPUS: _cpus,
}
