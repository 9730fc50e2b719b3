"""What a job is checked for before it is handed over: what this site could never run."""

import os
import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from headway.errors import ImpossibleDemand, InvalidInput, LedgerError
from headway.model.job import MIN_MEMORY_BYTES, OWNER, TrainingJob
from headway.model.job_text import JobText, read_job
from headway.model.lease import Demand
from headway.model.node import Node
from headway.model.run import Prediction
from headway.policy.plan import Plan, Start, Stay, WaitingRun
from headway.prefect.client import PrefectServer
from headway.scheduler.limits import read_gates
from headway.scheduler.queue import Line
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


def read_for(site: Site, text: bytes, *, filename: str, overrides: Sequence[str] = ()) -> JobText:
    """The job that *text* describes.

    Raises:
        InvalidInput: Something is wrong with it, or its image or a secret is not allowed here.
    """
    try:
        read = read_job(text, filename=filename, overrides=overrides)
    except InvalidInput as error:
        raise _with_the_limit_here(error, site) from None
    if not read.job.owner:
        read = replace(read, job=read.job.model_copy(update={"owner": os_user()}))
    policy, image = site.container_policy, read.job.image
    if not policy.allows_image(image):
        allowed = f"this site allows {', '.join(policy.images)}"
        raise InvalidInput("image", image, allowed, where=read.place("image"))
    secret = policy.refused_secret(read.job.secrets)
    if secret is not None:
        where = read.place(secret.field)
        raise InvalidInput(secret.field, secret.value, secret.allowed, where=where)
    return read


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
    _, demand = site.forecast(read.job, dataset_bytes=None, pool=pool, queue=queue)
    nodes = read.job.resources.nodes
    refusal = site.never(demand, nodes, pool=pool, queue=queue)
    refusal = refusal or site.over_quota(demand, nodes, read.job.team)
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
            field = f"secrets.{variable}"
            allowed = "give the name of a Prefect Secret block that exists"
            raise InvalidInput(field, block, allowed, where=read.place(field))
    if not _runs_here(site, pool, queue):
        return
    node = site.settings.node
    if job.dataset is not None and nothing_at(job.dataset.uri):
        allowed = f"nothing is there on node {node}; give the address of data that is"
        where = read.place("dataset.uri")
        raise InvalidInput("dataset.uri", job.dataset.uri, allowed, where=where)
    if why := site.runtime.why_no_image(job.image):
        allowed = f"it is not on node {node}, and its registry has none ({why}); give one that is"
        raise InvalidInput("image", job.image, allowed, where=read.place("image"))


def _runs_here(site: Site, pool: str, queue: str) -> bool:
    """Whether this machine is the only node that a run of *pool* and *queue* may come to."""
    records = {r.node.name: r for r in site.ledger.nodes.all() if r.node.pool == pool}
    able = {queue} if queue in records else set(records)
    return able == {site.settings.node} and records[site.settings.node].boot_id == boot_id()


def _with_the_limit_here(error: InvalidInput, site: Site) -> InvalidInput:
    """*error*, saying what the largest node allows instead of what the model does."""
    try:
        allowed = limit(error.field, site.nodes())
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
    prediction, demand = site.forecast(job, dataset_bytes=None, pool=pool, queue=queue)
    entry = rehearsed(
        Line(site, pool).preview,
        site.ledger.now(),
        job,
        prediction,
        demand,
        node=queue if queue in {node.name for node in site.nodes()} else "",
        nodes=job.resources.nodes,
        priority=read_gates(site.ledger, pool).priorities.get(queue, -1),
    )
    return entry, prediction, demand


def rehearsed(
    preview: Callable[[Sequence[WaitingRun]], Plan],
    now: datetime,
    job: TrainingJob,
    prediction: Prediction,
    demand: Demand,
    *,
    node: str = "",
    nodes: int = 1,
    priority: int = -1,
) -> Start | Stay | None:
    """The plan's word on *job*, asked for *now*, with this *demand* on each of *nodes*.

    *preview* gives the plan with a run added to the line; see `Line` and `rehearse`.
    """
    run = WaitingRun(
        run_id=REHEARSAL,
        demand=demand,
        submitted_at=now,
        team=job.team,
        priority=priority,
        median_s=prediction.runtime_s,
        high_s=prediction.runtime_high_s,
        nodes=nodes,
        node=node,
    )
    return next((e for e in preview([run]).entries if e.run_id == REHEARSAL), None)
