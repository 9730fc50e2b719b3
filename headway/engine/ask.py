"""A training job as a request to an engine, or why the engine cannot have it. Pure functions.

What was learnt of jobs like it becomes what is asked for: cpus, memory, GPUs, and a time limit from
the upper quantile, within what the pool lets a job have. What has no counterpart there is refused
before the queue, with the field that asks for it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headway.engine.containers import chosen, none_of
from headway.engine.login import Login
from headway.engine.port import (
    Array,
    Gang,
    GpuAsk,
    Nice,
    Part,
    Request,
    Requeue,
)
from headway.model.engine import EnginePool, GpuKind
from headway.model.image import ImageReference
from headway.model.job import TrainingJob
from headway.model.launch import Launch
from headway.model.lease import Demand, Refuse, Sharing
from headway.model.node import is_of_type
from headway.model.run import Prediction
from headway.units import MINUTE_S, format_duration, format_size

_OWN_WORDS = frozenset({"nvidia", "tesla", "geforce", "amd", "instinct"})
"""Makers' words of a product name, which clusters leave out of their types."""
_INSTEAD: Mapping[str, str] = {
    "dataset": "leave it out, and name its path in the command: nothing is copied to the nodes",
    "datasets": "leave it out, and name the paths in the command: nothing is copied to the nodes",
    "config": "leave it out, and bring the file in workdir: nothing is written for the program",
    "secrets": "leave it out, and let the program read a file that is yours alone: nobody hands "
    "secrets out there",
    "volumes": "leave it out, and name the path in the command: nodes have what they have mounted, "
    "and only a program in an image does not see it",
    "user_folder": "leave it out, and write to your own folder on the cluster",
    "profile": "leave it out, and start the command by the nodes' own nsys",
}
"""What to do without fields that only headway's own nodes carry out, in the cluster's way."""
_SPARE = 1.2
"""Of the upper quantile of its time: a job that is killed at its limit has lost all of it."""
_LEAST_S = 5 * MINUTE_S


@dataclass(frozen=True, slots=True)
class Terms:
    """What a site has agreed with a cluster for one team, and where a job is in its line."""

    account: str = ""
    qos: str = ""
    login: Login | Refuse | None = None
    """Of its member, as `login_of` says."""
    nice: int = 0
    parts: tuple[Part, ...] = field(default=())
    """Of an array, or after others."""


def ask(
    key: str,
    *,
    job: TrainingJob,
    demand: Demand,
    said: Prediction,
    pool: EnginePool,
    takes: frozenset[type[Part]],
    terms: Terms,
    at_least_s: float = 0.0,
) -> Request | Refuse:
    """What the engine is asked for, or why it cannot be.

    Args:
        key: Of the run's attempt.
        job: What was asked for, of one size.
        demand: What it needs on each node, upper quantiles.
        said: What is predicted of it.
        pool: Where it is to go.
        takes: The parts of a request that the engine has a counterpart for.
        terms: The site's with the cluster.
        at_least_s: Its time limit, where less was not enough.
    """
    if isinstance(terms.login, Refuse):
        return terms.login
    gpus = gpus_of(job.resources.gpu_type, demand, pool) if demand.gpus else None
    if isinstance(gpus, Refuse):
        return gpus
    parts = tuple(_parts(job, demand, terms, can_requeue=Requeue in takes))
    problems = (
        _no_counterpart(job),
        _no_image(job, pool),
        _too_large(demand, job.nodes, pool),
        _too_long(job, pool),
        *(_not_taken(part) for part in parts if type(part) not in takes),
    )
    for problem in problems:
        if problem is not None:
            return problem
    return Request(
        key=key,
        name=job.name,
        pool=pool.name,
        command=tuple(job.command),
        cpus=max(1, math.ceil(demand.cpus)),
        host_memory_bytes=demand.host_memory_bytes,
        env=job.env,
        python=job.python,
        image=str(ImageReference.parse(job.image)) if job.image else "",
        gpus=gpus,
        time_limit_s=time_limit_s(job.max_runtime, said, job.stop_grace, pool, at_least_s),
        grace_s=job.stop_grace,
        parts=parts,
        account=terms.account,
        qos=terms.qos,
        login=terms.login,
    )


def time_limit_s(
    max_runtime_s: float | None,
    said: Prediction,
    grace_s: float,
    pool: EnginePool,
    at_least_s: float = 0.0,
) -> float | None:
    """How long the job may run; None for the pool's own limit, where nothing is known of it.

    Its user's limit is the most. What was learnt is asked for with something to spare, since a
    shorter request starts earlier, and one that is too short loses all.
    """
    learnt = said.learnt
    wanted = [] if learnt is None else [max(learnt.high_s * _SPARE, _LEAST_S, at_least_s) + grace_s]
    wanted += [at_least_s] if at_least_s and not wanted else []
    wanted += [] if max_runtime_s is None else [max_runtime_s]
    if not wanted:
        return None
    # The engine adds its signal's grace and inaccuracy: these have to fit, too.
    most = [] if pool.max_time_s is None else [pool.max_time_s - grace_s - 2 * MINUTE_S]
    return max(min(wanted + most), MINUTE_S)


def gpu_kind(wish: str, count: int, pool: EnginePool) -> GpuKind | Refuse:
    """The GPUs of *pool* that a job may have which wishes for *wish*; their count: on one node."""
    kinds = [kind for node in pool.nodes for kind in node.gpus]
    words = " ".join(word for word in wish.split() if word.lower() not in _OWN_WORDS)
    fitting = [kind for kind in kinds if is_of_type(words, kind.type)]
    if not fitting:
        known = sorted({kind.type or "of no named type" for kind in kinds})
        has = f"its GPUs are {', '.join(known)}" if known else "it has no GPUs"
        field_ = "resources.gpu_type" if wish else "resources.gpus"
        return Refuse(field_, wish or count, f"choose another pool than {pool.name}: {has}")
    most = max(fitting, key=lambda kind: kind.count)
    if most.count < count:
        return Refuse(
            "resources.gpus", count,
            f"give at most {most.count}: no node of pool {pool.name} has more of them",
        )  # fmt: skip
    # Without a wish any will do; the engine chooses.
    return most if wish else GpuKind("", most.count, most.shards)


def gpus_of(wish: str, demand: Demand, pool: EnginePool) -> GpuAsk | Refuse:
    """Whole GPUs, or parts of one where the cluster divides them and the job shares."""
    kind = gpu_kind(wish, demand.gpus, pool)
    if isinstance(kind, Refuse):
        return kind
    divided = all(each.shards for node in pool.nodes for each in node.gpus)
    if demand.sharing is Sharing.WHOLE or demand.gpus > 1 or not divided:
        return GpuAsk(demand.gpus, kind.type)
    parts = kind.shards // kind.count
    share = min(max(demand.gpu_utilisation_frac, 1 / parts), 1.0)
    return GpuAsk(1, kind.type, shards=math.ceil(share * parts))


def _parts(job: TrainingJob, demand: Demand, terms: Terms, *, can_requeue: bool) -> Iterator[Part]:
    yield from terms.parts
    if job.nodes > 1:
        starts_others = job.launch.starts_others
        yield Gang(job.nodes, starts_others, {} if starts_others else gang_variables(job, demand))
    if terms.nice:
        yield Nice(terms.nice)
    if job.retries and can_requeue:  # else headway itself starts it again
        yield Requeue()


def gang_variables(job: TrainingJob, demand: Demand) -> Mapping[str, str]:
    """As on own nodes (`run.rendezvous.Meeting`), with what only the machines know left open."""
    found = {
        "HEADWAY_NODES": "{world_size}",
        "HEADWAY_NODE_RANK": "{rank}",
        "MASTER_ADDR": "{master_addr}",
        "MASTER_PORT": "{master_port}",
    }
    if job.launch is Launch.TORCH:
        alone = {"RANK": "{rank}", "WORLD_SIZE": "{world_size}", "LOCAL_RANK": "0"}
        found |= {
            **(alone if demand.gpus <= 1 else {"PET_NPROC_PER_NODE": str(demand.gpus)}),
            "PET_NNODES": "{world_size}",
            "PET_NODE_RANK": "{rank}",
            "PET_MASTER_ADDR": "{master_addr}",
            "PET_MASTER_PORT": "{master_port}",
        }
    return found


def _no_counterpart(job: TrainingJob) -> Refuse | None:
    """What only headway's own nodes have."""
    resources = job.resources
    size = f"{resources.gpus} GPUs on {resources.nodes} nodes"
    one_size = "give one number of each: a cluster's job has one size"
    at_once = "TF_CONFIG names all nodes before any of them begins"
    wide = job.nodes > 1 and job.launch is Launch.TENSORFLOW
    led = _own("nothing leads to programs of a cluster's nodes")
    fields = [name for name in _INSTEAD if name != "volumes" or not job.image]
    unknown = next((name for name in fields if getattr(job, name)), "")
    large = resources.gpu_memory is not None and not resources.gpu_type
    by_type = "name a type of GPU by gpu_type in its place: a cluster tells no GPU's memory"
    problems = (
        (unknown, Refuse(unknown, "given", _INSTEAD.get(unknown, ""))),
        (large, Refuse("resources.gpu_memory", resources.gpu_memory, by_type)),
        (job.session, Refuse("session", "given", led)),
        (job.ports, Refuse("ports", job.ports, led)),
        (job.is_elastic, Refuse("resources", size, one_size)),
        (wide, Refuse("launch", job.launch, _own(at_once))),
        (resources.disk, Refuse("resources.disk", resources.disk, _own("nothing limits it there"))),
    )
    return next((refuse for wish, refuse in problems if wish), None)


def _no_image(job: TrainingJob, pool: EnginePool) -> Refuse | None:
    """What no program of the pool's machines can do with the image."""
    if not job.image:
        return None
    known = pool.containers
    if known is not None and chosen(known) is None:
        allowed = f"give python in its place, or another pool: nothing starts images in {pool.name}"
        return Refuse("image", job.image, f"{allowed} ({none_of(known)})")
    if job.requirements:
        allowed = "leave it out, and have in the image what it names, or give python for the image"
        return Refuse("requirements", job.requirements, allowed)
    if job.nodes > 1 and job.launch.starts_others:
        why = "what starts the others is in an image, and reaches no other node from there"
        return Refuse("launch", job.launch, _own(why))
    return None


def _own(why: str) -> str:
    return f"leave it out, or choose a pool of headway's own nodes: {why}"


def _too_large(demand: Demand, nodes: int, pool: EnginePool) -> Refuse | None:
    if pool.max_nodes is not None and nodes > pool.max_nodes:
        allowed = f"give at most {pool.max_nodes}, the most of pool {pool.name}"
        return Refuse("resources.nodes", nodes, allowed)
    if nodes > len(pool.nodes):
        allowed = f"give at most {len(pool.nodes)}: pool {pool.name} has no more"
        return Refuse("resources.nodes", nodes, allowed)
    most_bytes = _most([node.host_memory_bytes for node in pool.nodes], nodes)
    if demand.host_memory_bytes > most_bytes:
        return Refuse(
            "resources.host_memory", format_size(demand.host_memory_bytes),
            f"give at most {format_size(most_bytes)}, what the largest of pool {pool.name} have",
        )  # fmt: skip
    most_cpus = _most([node.cpus for node in pool.nodes], nodes)
    if math.ceil(demand.cpus) > most_cpus:
        allowed = f"give at most {most_cpus}, what the largest of pool {pool.name} have"
        return Refuse("resources.cpus", demand.cpus, allowed)
    return None


def _most(sizes: Sequence[int], nodes: int) -> int:
    """What so many nodes all have."""
    return sorted(sizes, reverse=True)[nodes - 1]


def _too_long(job: TrainingJob, pool: EnginePool) -> Refuse | None:
    most_s = pool.max_time_s
    if job.max_runtime is None or most_s is None or job.max_runtime <= most_s:
        return None
    allowed = f"give at most {format_duration(most_s)}, the limit of pool {pool.name}"
    return Refuse("max_runtime", format_duration(job.max_runtime), allowed)


def _not_taken(part: Part) -> Refuse:
    what = {Array: "array", Gang: "resources.nodes", Nice: "priority"}.get(type(part), "after")
    return Refuse(what, str(part), _own("this engine has nothing like it"))
