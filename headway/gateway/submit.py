"""What a job is checked for before it is handed over: what this site could never run."""

import math
import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from headway.errors import ImpossibleDemand, InvalidInput, LedgerError
from headway.forecast import Forecaster
from headway.model.access import Caller, Scope
from headway.model.document import Document
from headway.model.job import TrainingJob
from headway.model.job_text import JobText, job_from_document
from headway.model.job_types import MIN_MEMORY_BYTES, OWNER
from headway.model.lease import Demand
from headway.model.node import Node
from headway.model.run import Prediction
from headway.policy.fit import WaitingRun
from headway.policy.narrowing import refused_port
from headway.policy.plan import Plan, Start, Stay
from headway.policy.settings import PolicySettings
from headway.prefect.client import PrefectServer
from headway.scheduler.limits import read_gates
from headway.scheduler.planning import preview
from headway.site import Site
from headway.staging.source import nothing_at
from headway.telemetry.host import boot_id
from headway.units import format_size

REHEARSAL = "this job"
"""Stands for a run that does not exist."""


def os_user() -> str:
    """Who runs this process, by its uid: ``$USER`` is anybody's to set."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    return name if re.fullmatch(OWNER, name) else f"uid-{uid}"


def job_for(site: Site, document: object) -> TrainingJob:
    """The job that plain data describes.

    Raises:
        InvalidInput: Something is wrong with it.
    """
    try:
        return job_from_document(document)
    except InvalidInput as error:
        raise _with_the_limit_here(error, site) from None


def job_of(site: Site, document: Mapping[str, Any], caller: Caller) -> JobText:
    """The job of a request as *caller*'s, if the site's policy allows it.

    Raises:
        InvalidInput: Something is wrong with it, or it is to be somebody else's.
    """
    own = stamped(document, caller)
    return allowed_here(site, JobText(job_for(site, own), Document(own)))


def stamped(job: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """*job* as *caller*'s; an operator may hand it in as anybody's.

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
    """*read*, if the site's policy allows its image and its secrets.

    Raises:
        InvalidInput: It does not.
    """
    policy, image, team = site.policy_for(read.job.team), read.job.image, read.job.team
    if not policy.allows_image(image):
        raise _wrong(read, "image", image, f"this site allows {', '.join(policy.images)}")
    secret = policy.refused_secret(read.job.secrets, team)
    if secret is not None:
        raise _wrong(read, secret.field, secret.value, secret.allowed)
    port = refused_port(read.job.ports, team, policy.port_ranges)
    if port is not None:
        raise _wrong(read, "ports", *port)
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
        demand, job.resources.nodes, job.team, user=job.owner, pool=pool, queue=queue
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
    if job.dataset is not None and nothing_at(job.dataset.uri, site.user_of(job.team)):
        allowed = f"nothing is there on node {node}; give the address of data that is"
        raise _wrong(read, "dataset.uri", job.dataset.uri, allowed)
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
            allowed = "only `headway submit` and `headway run` send a folder: hand the job in so"
            raise _wrong(read, "workdir", job.workdir, allowed)
    elif not site.ledger.code.use(job.team, job.code):
        allowed = f"team {job.team} has sent no such folder, or not lately: send it again"
        raise _wrong(read, "code", job.code, allowed)


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
    return InvalidInput(error.field, error.value, allowed, where=error.where)


def limit(field: str, nodes: Sequence[Node]) -> str:
    """What *nodes* allow for *field*, as the end of a sentence; empty if it depends on none."""
    low = format_size(MIN_MEMORY_BYTES)
    if field == "resources.gpu_memory":
        sizes = [
            (gpu.memory_bytes - gpu.reserve_bytes, node.pool)
            for node in nodes
            for gpu in node.capacity.gpus
        ]
        if sizes:
            high, pool = max(sizes)
            size = format_size(high)
            return f"give a size between {low} and {size} (the largest GPU of pool {pool})"
    elif field == "resources.host_memory" and nodes:
        high, name = max(
            (node.capacity.host_memory_bytes - node.reserve.host_memory_bytes, node.name)
            for node in nodes
        )
        return (
            f"give a size between {low} and {format_size(high)} (the largest node, {name}), or auto"
        )
    elif field == "resources.cpus" and nodes:
        cpus, name = max((node.capacity.cpus - node.reserve.cpus, node.name) for node in nodes)
        return f"give a number between 0.01 and {cpus:g} (the largest node, {name})"
    return ""


def rehearse(
    site: Site, job: TrainingJob, *, pool: str, queue: str
) -> tuple[Start | Stay | None, Prediction, Demand]:
    """What would become of *job* if it were handed in now, with what it would be taken to need.

    Args:
        site: Where.
        job: What.
        pool: The work pool it would go to.
        queue: Its work queue; one of a node's name binds it to that node.

    Returns:
        The plan's word on it, None when it would be behind those that are planned for.
    """
    forecaster = Forecaster(site)
    prediction, demand = forecaster.forecast(job, pool=pool, queue=queue)
    run = waiting_run(
        job,
        prediction,
        demand,
        site.ledger.now(),
        site.policy_settings,
        node=queue if queue in {each.node.name for each in forecaster.nodes} else "",
        priority=read_gates(site.ledger, pool).priorities.get(queue, -1),
    )
    return planned(preview(site, pool), run), prediction, demand


def waiting_run(
    job: TrainingJob,
    prediction: Prediction,
    demand: Demand,
    now: datetime,
    settings: PolicySettings,
    *,
    node: str = "",
    nodes: int | None = None,
    priority: int = -1,
) -> WaitingRun:
    """*job* as a run that comes into the queue *now*, with this *demand* on each of *nodes*."""
    return WaitingRun.of(
        REHEARSAL,
        demand,
        now,
        settings=settings,
        median_s=prediction.runtime_s,
        high_s=prediction.runtime_high_s,
        limit_s=job.max_runtime or math.inf,
        team=job.team,
        user=job.owner,
        priority=priority,
        nodes=job.resources.nodes if nodes is None else nodes,
        node=node,
    )


def planned(plan: Callable[[Sequence[WaitingRun]], Plan], run: WaitingRun) -> Start | Stay | None:
    """What *plan*, a `preview`, says of *run*; None behind those that it plans for."""
    return next((each for each in plan([run]).entries if each.run_id == REHEARSAL), None)
