"""Which engines a site can hand runs to, by name: how each is reached, and what it takes."""

from collections.abc import Mapping, Sequence

from headway.clock import Clock
from headway.engine.place import Place
from headway.engine.port import Engine, Part
from headway.engine.psij import PsijEngine
from headway.engine.ray_jobs import RayEngine
from headway.engine.slurm import SlurmEngine
from headway.errors import InvalidInput
from headway.model.engine import EngineNode, EnginePool, GpuKind
from headway.units import parse_duration, parse_size

SLURM, RAY = "slurm", "ray"
TOLD = ("pbs", "pbs_classic", "lsf")
"""Those by PSI/J: who adds one says what its queues have."""
_CLASSES: Mapping[str, type[SlurmEngine | RayEngine | PsijEngine]] = {
    SLURM: SlurmEngine,
    RAY: RayEngine,
    **dict.fromkeys(TOLD, PsijEngine),
}
_QUEUE = "give NAME nodes=8 cpus=64 memory=256GiB max_time=48h, and gpus=4 where each node has some"


def takes(name: str) -> frozenset[type[Part]]:
    """For which parts of a request that engine has a counterpart."""
    return _CLASSES[name].takes


def opened(name: str, place: Place, site: str, clock: Clock, pools: Sequence[EnginePool]) -> Engine:
    """That engine, as this user has it.

    Args:
        name: One of those above.
        place: The folder that this host and its machines share.
        site: Name of the installation.
        clock: For how long something has been so.
        pools: As they are known: where it answers, and what was said of it.

    Raises:
        InvalidInput: What it needs is not installed here, or where it answers is not known.
    """
    if name == SLURM:
        return SlurmEngine(place, site, clock)
    if name == RAY:
        return RayEngine(place, site, clock, address=pools[0].address if pools else "")
    try:
        return PsijEngine(place, site, clock, kind=name, pools=pools)
    except ModuleNotFoundError as error:
        allowed = "install PSI/J here: pip install 'headway[psij]'"
        raise InvalidInput("engine", name, allowed) from error


def told_queue(text: str) -> EnginePool:
    """A queue as somebody says it: its name, then what each of its nodes has, and its limit.

    Raises:
        InvalidInput: It is not written so.
    """
    name, *words = text.split() or [""]
    said = dict(word.partition("=")[::2] for word in words)
    try:
        gpus = int(said.pop("gpus", "0"))
        count, cpus = int(said.pop("nodes")), int(said.pop("cpus"))
        memory_bytes, max_time_s = parse_size(said.pop("memory")), said.pop("max_time", None)
        longest_s = None if max_time_s is None else parse_duration(max_time_s)
    except (KeyError, ValueError) as error:
        raise InvalidInput("queue", text, _QUEUE) from error
    if said or not name or min(count, cpus, memory_bytes) < 1 or gpus < 0:
        raise InvalidInput("queue", text, _QUEUE)
    kinds = (GpuKind("", gpus),) if gpus else ()
    nodes = tuple(EngineNode(f"{name}{at}", cpus, memory_bytes, kinds) for at in range(count))
    return EnginePool(name, nodes, max_time_s=longest_s, max_nodes=1)
