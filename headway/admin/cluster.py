"""Jobs on a cluster, by its own scheduler: from a job file to a request, and to the job's end.

Without a site: what is known of a job lies in the folder that submit host and nodes share
(`engine.place`), and what was learnt of runs on own nodes says nothing here yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headway.clock import Clock
from headway.engine.ask import Terms, ask
from headway.engine.pace import pause_s
from headway.engine.place import Place
from headway.engine.port import Cluster, Engine, EnginePool, Job, Phase, Request
from headway.engine.slurm import SlurmEngine
from headway.errors import EngineAway, InvalidInput
from headway.estimate.framework_memory import host_guess
from headway.estimate.prior import demand_for
from headway.model.job import TrainingJob
from headway.model.lease import Refuse
from headway.model.run import Prediction
from headway.site import Site
from headway.units import format_duration, format_size

_OF_OWN_NODES = (
    "code", "requirements", "dataset", "datasets", "after", "config", "outputs", "notify",
    "volumes", "user_folder", "profile",
)  # fmt: skip
"""Fields that only headway's own nodes carry out, beside those that `engine.ask` refuses."""
_LOOK_S = 0.5
_AFTER_END_S = 2.0
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class News:
    """What has become known of a job: a piece of its log, or a sentence about it."""

    log: bytes = b""
    sentence: str = ""
    ended: Job | None = None
    """Once it has ended; nothing follows."""


def open_engine(site: Site) -> SlurmEngine:
    """Slurm, as this user has it, with its jobs in the home, which all nodes have to share."""
    folder = site.settings.home.resolve() / "slurm"
    return SlurmEngine(Place(folder), site.site_id, site.clock)


def pool_of(cluster: Cluster, name: str | None) -> EnginePool:
    """The pool of that name, or the cluster's default.

    Raises:
        InvalidInput: There is none.
    """
    for pool in cluster.pools:
        if pool.name == name or (name is None and pool.is_default):
            return pool
    known = ", ".join(pool.name for pool in cluster.pools) or "none: this user sees no partition"
    raise InvalidInput("pool", name or "no default", f"give one of the cluster's: {known}")


def request_of(job: TrainingJob, key: str, pool: EnginePool, folder: Path) -> Request:
    """What the cluster is asked for to run *job*, whose file lies in *folder*.

    Raises:
        InvalidInput: It asks for something that has no counterpart there.
    """
    for field in _OF_OWN_NODES:
        if field in job.model_fields_set and (value := getattr(job, field)):
            allowed = "leave it out: on a cluster headway only starts the command"
            raise InvalidInput(field, value, allowed)
    demand = demand_for(job, Prediction(), host_guess=host_guess(job, job.gpus, ()))
    found = ask(
        key,
        job=job,
        demand=demand,
        said=Prediction(),
        pool=pool,
        takes=SlurmEngine.takes,
        terms=Terms(),
    )
    if isinstance(found, Refuse):
        raise InvalidInput(found.field, found.value, found.allowed)
    return replace(found, working_dir=str(folder / job.workdir))


def find(engine: Engine, key: str) -> list[Job]:
    """The job of that key.

    Raises:
        InvalidInput: There is none.
    """
    found = [job for job in engine.jobs() if job.key == key]
    if not found:
        raise InvalidInput("key", key, "give one that `headway slurm jobs` names")
    return found


def follow(engine: Engine, key: str, clock: Clock) -> Iterator[News]:
    """Its log as it grows, and what changes about it, until it has ended.

    The scheduler is asked no more often than `engine.pace` allows; one that is away is asked again.

    Raises:
        InvalidInput: There is no such job.
    """
    job, offset, told, failures = find(engine, key)[0], 0, "", 0
    asked_s = clock.monotonic_s()
    wait_s = pause_s(0.0, 0)
    while True:
        if (now := about(job)) != told and job.phase is not Phase.ENDED:
            told = now
            yield News(sentence=told)
        while data := _piece(engine.log(key), offset):
            offset += len(data)
            yield News(log=data)
        if job.phase is Phase.ENDED:
            yield News(sentence=about(job), ended=job)
            return
        clock.sleep(_LOOK_S)
        # Once its own record tells of its end, nobody need wait for long to hear the same.
        soon_s = wait_s if failures or engine.used(key) is None else min(wait_s, _AFTER_END_S)
        if clock.monotonic_s() - asked_s < soon_s:
            continue
        asked_s = clock.monotonic_s()
        try:
            job, failures = find(engine, key)[0], 0
        except EngineAway as away:
            failures += 1
            yield from [News(sentence=str(away))] if failures == 1 else []
        wait_s = pause_s(clock.monotonic_s() - asked_s, failures)


def about(job: Job) -> str:
    """What is known of it, as a sentence."""
    if job.phase is Phase.ENDED:
        how = "nobody can say how" if job.end is None else job.end.kind.value.replace("_", " ")
        why = "" if job.end is None or not job.end.message else f": {job.end.message}"
        return f"ended, {how}{why}"
    text = job.phase.value
    if job.phase is Phase.RUNNING and job.nodes:
        text += f" on {job.nodes}"
    if job.reason is not None and job.phase is not Phase.RUNNING:
        step = f"; {job.reason.step}" if job.reason.step else ""
        text += f": {job.reason.sentence}{step}"
    if job.expected_start_at is not None:
        at = job.expected_start_at.astimezone()
        text += f"; by its scheduler's forecast it starts {at:%d %b %H:%M}"
    return text


def asked_for(request: Request) -> str:
    """The size of a request, as a sentence."""
    gpus = request.gpus
    parts = [f"{request.cpus} cpus", f"{format_size(request.host_memory_bytes)} of memory"]
    if gpus is not None:
        whole = f"{gpus.shards} parts of a" if gpus.shards else str(gpus.count)
        parts.append(" ".join(word for word in (whole, gpus.type, "GPUs") if word))
    limit_s = request.time_limit_s
    parts.append("the partition's time limit" if limit_s is None else format_duration(limit_s))
    return ", ".join(parts)


def _piece(log: Path, offset: int) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(offset)
            return file.read(_PIECE_BYTES)
    except FileNotFoundError:
        return b""
