"""What a job is checked for before it is handed over: what this site could never run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from headway.errors import ImpossibleDemand, InvalidInput, LedgerError, RunUnknown
from headway.forecast import Forecaster
from headway.gateway.job_data import with_known_sizes
from headway.model.access import Caller, Scope
from headway.model.document import Document
from headway.model.job import TrainingJob
from headway.model.job_parts import data_field
from headway.model.job_text import JobText, job_from_document
from headway.model.job_types import MIN_MEMORY_BYTES
from headway.model.lease import Demand
from headway.model.node import Node
from headway.model.run import Exit, Prediction
from headway.model.volume import refused_volume
from headway.policy.after import Followed, Following
from headway.policy.fit import WaitingRun
from headway.policy.plan import Plan, Start, Stay
from headway.policy.settings import PolicySettings
from headway.prefect.client import PrefectServer
from headway.scheduler.cpu_fallback import lacks_gpus, said_on_cpu
from headway.scheduler.limits import read_gates
from headway.scheduler.planning import read_pool
from headway.scheduler.why import Advice, Asked, advice, told
from headway.site import Site
from headway.staging.source import nothing_at
from headway.telemetry.host import boot_id
from headway.units import format_size

_OF_AN_ENGINE = "by its cluster's own scheduler, of whose starts headway promises none"
REHEARSAL = "this job"
"""Stands for a run that does not exist."""


def job_for(site: Site, document: object) -> TrainingJob:
    """The job that plain data describes.

    Raises:
        InvalidInput: Something is wrong with it.
    """
    try:
        return job_from_document(document)
    except InvalidInput as error:
        raise _with_the_limit_here(error, site) from None


def job_of(
    site: Site, document: Mapping[str, Any], caller: Caller, *, pool: str = "", queue: str = ""
) -> JobText:
    """The job of a request as *caller*'s, if the site's policy allows it.

    Args:
        site: Where.
        document: The job.
        caller: Who submits it.
        pool: The work pool it goes to; empty for any of the site.
        queue: Its work queue; one of a node's name binds it to that node.

    Raises:
        InvalidInput: Something is wrong with it, or it is to be somebody else's.
    """
    own = stamped(document, caller)
    if own.get("notify") is None:
        user = site.policy_settings.team(own["team"]).user(own["owner"])
        own |= {"notify": list(user.notify)} if user.notify else {}
    job = job_for(site, own)
    job = _in_image(site, job, pool, queue)
    read = allowed_here(site, JobText(job, Document(own)))
    read = replace(read, job=with_known_sizes(site, read))
    return replace(read, job=following(site, read.job))


def _in_image(site: Site, job: TrainingJob, pool: str, queue: str) -> TrainingJob:
    """*job* in an image of its Python that a node has, or gets from its registry.

    Raises:
        InvalidInput: There is none.
    """
    found, instead = Forecaster(site).on_base_image(job, job.team, pool, queue)
    if instead is not None and (why := site.runtime.why_no_image(found.image)) != "":
        said = f"its registry has none ({why})" if why else "nobody here can ask its registry"
        there = f"The nodes have {instead}: give one of these or an image"
        if not instead:
            there = "Nor have they one of another Python: give an image that they have"
        allowed = f"no node had its image {found.image} ten seconds ago, and {said}. {there}, "
        allowed += "or have an operator load one on a node and name it in base_images"
        raise InvalidInput("python", job.python, allowed)
    return found


def following(site: Site, job: TrainingJob) -> TrainingJob:
    """*job*, naming the run that it follows by its id: a later run may have the name.

    Raises:
        InvalidInput: Its team has no such run.
    """
    if job.after is None:
        return job
    try:
        found = site.ledger.runs.find(job.after.run, team=job.team, owner=job.owner)
    except RunUnknown:
        allowed = f"give a run of team {job.team}; `headway runs` lists them"
        raise InvalidInput("after.run", job.after.run, allowed) from None
    after = job.after.model_copy(update={"run": found.run_id})
    return job.model_copy(update={"after": after})


def why_not_yet(site: Site, job: TrainingJob) -> str:
    """Why *job* would wait, or never start, for the run that it follows; empty where it may."""
    if job.after is None:
        return ""
    found = site.ledger.runs.get(job.after.run)
    other = Followed(found.run_id, found.name, found.team, found.exit)
    said = Following(job.after.run, job.after.when, job.team, other).says()
    if isinstance(said, Exit):
        return f"never: {said.message}"
    return "" if said is None else said.reason


def stamped(job: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """*job* as *caller*'s; an operator may submit it as anybody's.

    Raises:
        InvalidInput: It names another owner or team: to run it as somebody else's than it says
            would be as wrong as to believe it.
    """
    own: dict[str, Any] = {"owner": caller.user, "team": caller.team}
    for field, value in own.items():
        # What a form fills in where nobody has said anything names nobody.
        said = job.get(field, value)
        if said in (value, TrainingJob.model_fields[field].default):
            continue
        if not caller.may(Scope.OPERATE):
            allowed = f"it comes from your token, which says {value}: leave it out"
            raise InvalidInput(field, said, allowed)
        own[field] = said
    return {**job, **own}


def allowed_here(site: Site, read: JobText) -> JobText:
    """*read*, if the site's policy allows its image, secrets and volumes.

    Raises:
        InvalidInput: It does not.
    """
    policy, image, team = site.policy_for(read.job.team), read.job.image, read.job.team
    if not policy.allows_image(image):
        raise _wrong(read, "image", image, f"this site allows {', '.join(policy.images)}")
    secret = policy.refused_secret(read.job.secrets, team)
    if secret is not None:
        raise _wrong(read, secret.field, secret.value, secret.allowed)
    volume = refused_volume(read.job.volumes, policy.volumes, team)
    if volume is not None:
        raise _wrong(read, volume.field, volume.value, volume.allowed)
    known = site.policy_settings.team(team).notify
    for at, block in enumerate(read.job.notify or ()):
        if block not in known:
            allowed = f"team {team} may name {', '.join(known) or 'none'}: operators list them"
            raise _wrong(read, f"notify.{at}", block, allowed)
    shm, largest = (
        read.job.resources.shm,
        max((each.node.capacity.host_memory_bytes for each in site.ledger.nodes.all()), default=0),
    )
    most = min(policy.max_shm_bytes, largest or policy.max_shm_bytes)
    if shm > most:
        who = "largest node" if most == largest else "site's policy"
        allowed = f"give at most {format_size(most)}, as the {who} allows"
        raise _wrong(read, "resources.shm", format_size(shm), allowed)
    return read


def _wrong(read: JobText, field: str, value: object, allowed: str) -> InvalidInput:
    return InvalidInput(field, value, allowed, where=read.place(field))


def refuse_impossible(site: Site, read: JobText, *, pool: str, queue: str) -> None:
    """Refuse before anything is queued what no node could ever hold.

    Args:
        site: Where.
        read: The job.
        pool: The work pool it goes to; empty for any of the site.
        queue: Its work queue; one of a node's name binds it to that node.

    Raises:
        ImpossibleDemand: Larger than any node there, or than its team may ever hold.
    """
    forecaster, job = Forecaster(site), read.job
    _, demand = forecaster.forecast(job, pool=pool, queue=queue)
    refusal = forecaster.refusal(
        demand, job.nodes, job.team, user=job.owner, pool=pool, queue=queue, job=job
    )
    if refusal is not None:
        where = read.place(refusal.field)
        raise ImpossibleDemand(refusal.field, refusal.value, refusal.allowed, where=where)


def refuse_missing(
    site: Site, read: JobText, server: PrefectServer, *, pool: str, queue: str
) -> None:
    """Refuse at once what would be refused by its flow, as far as that is known here.

    Data and image are looked for only where this machine is the one node that the
    job may run on; elsewhere other files lie and other images are.

    Args:
        site: Where.
        read: The job.
        server: Has the secrets.
        pool: The work pool it goes to.
        queue: Its work queue; one of a node's name binds it to that node.

    Raises:
        InvalidInput: Its data set, its image or one of its secrets is not there.
    """
    job = read.job
    for variable, block in job.secrets.items():
        if not server.has_secret(block):
            allowed = "give the name of a Prefect Secret block that exists"
            raise _wrong(read, f"secrets.{variable}", block, allowed)
    if not _runs_here(site, pool, queue):
        return
    node = site.settings.node
    # As its team's user: what other folders hold is not told, though this process could see it.
    for name, dataset in job.data.items():
        if nothing_at(dataset.uri, site.user_of(job.team)):
            allowed = f"nothing is there on node {node}; give the address of data that is"
            raise _wrong(read, f"{data_field(name)}.uri", dataset.uri, allowed)
    if why := site.runtime.why_no_image(job.image):
        allowed = f"it is not on node {node}, and its registry has none ({why}); give one that is"
        raise _wrong(read, "image", job.image, allowed)


def claim_code(site: Site, read: JobText) -> None:
    """Have the code that the job brings along stay until its run has ended.

    Raises:
        InvalidInput: The job's team has not sent it, or its folder was not sent at all.
    """
    job = read.job
    if job.code is None:
        if job.workdir:
            allowed = "only `headway submit` and `headway run` send a folder: use one of them"
            raise _wrong(read, "workdir", job.workdir, allowed)
    elif not site.ledger.code.use(job.team, job.code):
        allowed = f"team {job.team} has sent no such folder, or not lately: send it again"
        raise _wrong(read, "code", job.code, allowed)
    elif job.requirements:
        manifest = site.ledger.code.manifest(job.team, job.code)
        if manifest is not None and job.requirements not in {f.path for f in manifest.files}:
            allowed = "the folder that was sent has no such file; give one that travels along"
            raise _wrong(read, "requirements", job.requirements, allowed)


def _runs_here(site: Site, pool: str, queue: str) -> bool:
    """Whether this machine is the only node that a run of *pool* and *queue* may come to."""
    records = {r.node.name: r for r in site.ledger.nodes.all() if r.node.pool == pool}
    able = {queue} if queue in records else set(records)
    return able == {site.settings.node} and records[site.settings.node].boot_id == boot_id()


def _with_the_limit_here(error: InvalidInput, site: Site) -> InvalidInput:
    """*error*, saying what the largest node allows instead of what the model does."""
    try:
        allowed = limit(error.field, [each.node for each in site.ledger.nodes.all()])
    except LedgerError:
        return error  # what is wrong with the job is known all the same
    if not allowed:
        return error
    return InvalidInput(error.field, error.value, allowed, where=error.where, also=error.also)


def limit(field: str, nodes: Sequence[Node]) -> str:
    """What *nodes* allow for *field*, as the end of a sentence; empty if it depends on none."""
    sizes: list[tuple[float, str]] = []
    for node in nodes:
        has, kept = node.capacity, node.reserve
        if field == "resources.gpu_memory":
            where = f"GPU of pool {node.pool}"
            sizes += [(gpu.memory_bytes - gpu.reserve_bytes, where) for gpu in has.gpus]
        elif field == "resources.host_memory":
            free_bytes = has.host_memory_bytes - kept.host_memory_bytes
            sizes.append((free_bytes, f"node, {node.name}"))
        elif field == "resources.cpus":
            sizes.append((has.cpus - kept.cpus, f"node, {node.name}"))
    if not sizes:
        return ""
    most, largest = max(sizes)
    if field == "resources.cpus":
        return f"give a number between 0.01 and {most:g} (the largest {largest})"
    between = f"{format_size(MIN_MEMORY_BYTES)} and {format_size(most)}"
    auto = ", or auto" if field == "resources.host_memory" else ""
    return f"give a size between {between} (the largest {largest}){auto}"


class Rehearsal(NamedTuple):
    """What would become of a job."""

    entry: Start | Stay | None
    """None where nothing can be said of its start."""
    prediction: Prediction
    demand: Demand
    changes: Sequence[Advice]
    """What would start it earlier."""
    held_back: str
    """Why it would have no part in the plan; empty where it would."""


def rehearse(site: Site, job: TrainingJob, *, pool: str, queue: str) -> Rehearsal:
    """What would become of *job* if it were submitted now, with what it would be taken to need.

    Args:
        site: Where.
        job: What.
        pool: The work pool it would go to.
        queue: Its work queue; one of a node's name binds it to that node.
    """
    forecaster = Forecaster(site)
    prediction, demand = forecaster.forecast(job, pool=pool, queue=queue)
    if pool in forecaster.engine_pools:  # nothing is planned there, and so nothing promised
        held_back = why_not_yet(site, job) or _OF_AN_ENGINE
        return Rehearsal(None, prediction, demand, [], held_back)
    as_run = partial(
        waiting_run,
        now=site.ledger.now(),
        settings=site.policy_settings,
        node=queue if queue in {each.node.name for each in forecaster.nodes} else "",
        queue=queue,
        priority=read_gates(site.ledger, pool).priorities.get(queue, -1),
    )
    run = as_run(job, prediction, demand)
    now = read_pool(site, pool)
    said, wait = told(now, run), now.barred(run)
    if lacks_gpus(said.entry) and job.resources.cpu_fallback and job.nodes == 1:
        less = job.without_gpus()
        newly, needs = forecaster.forecast(less, pool=pool, queue=queue)
        sooner = said_on_cpu(said.entry, prediction, newly, now.seen.at)
        anew = told(now, as_run(less, newly, needs)) if sooner else said
        if sooner and isinstance(anew.entry, Start):
            return Rehearsal(anew.entry, sooner, needs, [], why_not_yet(site, job))
    changes = advice(site, now, Asked(run, job.document(), pool, queue), said)
    held_back = why_not_yet(site, job) or ("" if wait is None else wait.reason)
    return Rehearsal(said.entry, prediction, demand, changes, held_back)


def waiting_run(
    job: TrainingJob,
    prediction: Prediction,
    demand: Demand,
    now: datetime,
    settings: PolicySettings,
    *,
    node: str = "",
    queue: str = "",
    nodes: int | None = None,
    priority: int = -1,
) -> WaitingRun:
    """*job* as a run that comes into the queue *now*, with this *demand* on each of *nodes*."""

    def at(demand: Demand, said: Prediction, **more: Any) -> WaitingRun:
        return WaitingRun.of(
            REHEARSAL,
            demand,
            now,
            settings=settings,
            median_s=said.runtime_s,
            high_s=said.runtime_high_s,
            limit_s=job.max_runtime or math.inf,
            team=job.team,
            user=job.owner,
            priority=priority,
            nodes=demand.nodes or (job.nodes if nodes is None else nodes),
            node=node,
            queue=queue,
            lasts=said.learnt,
            **more,
        )

    larger = tuple(at(each.demand, each.said) for each in prediction.sizes[1:])
    return at(demand, prediction, larger=larger)


def planned(plan: Callable[[Sequence[WaitingRun]], Plan], run: WaitingRun) -> Start | Stay | None:
    """What *plan*, as of `PoolNow.plan`, says of *run*; None behind those that it plans for."""
    return next((each for each in plan([run]).entries if each.run_id == REHEARSAL), None)
