"""What the gateway does for those who may submit jobs: submit, cancel, retry.

Owner and team come from the token. Each act is noted in the audit table before Prefect is asked
for it: none that happened is missing there.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from headway.errors import EndUntold, InvalidInput, LeaseLost, SiteRefused, SiteUnreachable
from headway.gateway.door import Submitter
from headway.gateway.job_data import claim_uploads
from headway.gateway.prefect_calls import team_tag
from headway.gateway.runs import (
    check_own,
    check_owner,
    find_run,
    find_to_cancel,
    refuse_name,
    seen_team,
)
from headway.gateway.submit import (
    claim_code,
    job_of,
    refuse_impossible,
    refuse_missing,
    rehearse,
)
from headway.ledger import Ledger
from headway.ledger.audit_log import Act
from headway.ledger.calls import scheduler_of
from headway.ledger.records import RunRecord
from headway.model.access import Caller
from headway.model.engine import LEADS_TO
from headway.model.job_text import JobText
from headway.model.run import (
    CANCELLED_BY_USER,
    GRANTED,
    Exit,
    ExitKind,
    Measurement,
    RunState,
    cancelled_by,
)
from headway.model.session import serves_port, session_link
from headway.policy.admission import too_many_waiting
from headway.policy.base_image import without_engine
from headway.prefect.client import PrefectServer
from headway.scheduler.limits import read_gates
from headway.site import Site
from headway.views.queue_document import held_back_view, rehearsal_view
from headway.views.run_document import is_over

Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9 ._:/+-]+$")]


class SubmitRequest(BaseModel):
    """What `POST /v1/runs` takes."""

    model_config = ConfigDict(extra="forbid")

    job: dict[str, Any] = Field(description="The job, with the same fields as a job file.")
    key: Word | None = Field(None, description="Submitting twice with one key gives one run.")
    pool: Word | None = Field(None, description="Work pool, where the site has several.")
    queue: Word | None = Field(None, description="Work queue, or a node to run on.")


def actions(site: Site, server: PrefectServer) -> APIRouter:
    """The routes by which runs of *site* are submitted and changed; *server* is its Prefect."""
    router = APIRouter()

    @router.post("/runs")
    def submission(caller: Submitter, wanted: SubmitRequest) -> dict[str, Any]:
        """Submit a job; its owner and team are those of the token."""
        return submit(site, server, caller, wanted)

    @router.post("/rehearsals")
    def rehearsal(caller: Submitter, wanted: SubmitRequest) -> dict[str, Any]:
        """What would become of a job if it were submitted now; nothing is."""
        read, goes_to = checked(site, server, caller, wanted)
        pool, queue = str(goes_to["work_pool_name"]), wanted.queue or "default"
        found = rehearse(site, read.job, pool=pool, queue=queue)
        job = read.job
        view = rehearsal_view(
            found.entry, found.prediction, found.demand, found.changes, job.sizes, image=job.image
        )
        return view | held_back_view(found.held_back) if found.held_back else view

    @router.post("/runs/{run}/cancel")
    def cancel(caller: Submitter, run: str) -> dict[str, Any]:
        """End one of one's own runs; its container gets its grace time."""
        return end_run(site, server, caller, run)

    @router.post("/runs/{run}/retry")
    def retry(caller: Submitter, run: str) -> dict[str, Any]:
        """Try one of one's own runs that has ended once more, from its checkpoint."""
        found = find_run(site, server, caller, run)
        check_own(caller, found, run)
        seen, record = found
        if record is not None:
            refuse_no_retry(record)
            refuse_too_many(site, record.team, record.owner)
        note_act(site, caller, "run.retry", seen.run_id)
        state = server.retry(seen.run_id, f"retried by user {caller.user} (gateway)")
        attempt = record.attempt + 1 if record is not None else 1
        return {"run_id": seen.run_id, "name": seen.name, "state": state, "attempt": attempt}

    return router


def submit(
    site: Site, server: PrefectServer, caller: Caller, wanted: SubmitRequest
) -> dict[str, Any]:
    """Check the job, note the act, create the run, and put it into the ledger as *caller*'s.

    Raises:
        InvalidInput: Something is wrong with the job, or it is to be somebody else's.
    """
    refuse_too_many(site, caller.team, caller.user)
    read, goes_to = checked(site, server, caller, wanted)
    claim_code(site, read)
    claim_uploads(site, read)
    job, pool = read.job, str(goes_to["work_pool_name"])
    # Prefect's keys are the site's: with another's key one would be given the other's run.
    key = f"{caller.team}/{caller.user}/{wanted.key or uuid4()}"
    told = {"owner": job.owner, "team": job.team, "image": job.image}
    told |= {"code": job.code} if job.code else {}
    told |= {"key": key} if wanted.key else {}
    # A worker may see the run before its row is written below, and goes by this then.
    act = Act(caller.user, "run.submit", job.name, told)
    site.ledger.submissions.add(key, owner=job.owner, team=job.team, act=act)
    run = server.submit(
        {"job": job.document()},
        name=job.name,
        tags=[team_tag(job.team)],
        key=key,
        pool=wanted.pool,
        queue=wanted.queue,
    )
    queue = wanted.queue or str(goes_to.get("work_queue_name") or "default")
    record = site.ledger.runs.enqueue(
        run.run_id,
        job.document(),
        name=run.name,
        owner=job.owner,
        team=job.team,
        pool=pool,
        queue=queue,
        priority=read_gates(site.ledger, pool).priorities.get(queue, 0),
        submitted_at=site.ledger.now(),
    )
    site.ledger.calls.send([scheduler_of(pool)])
    made = {"run_id": record.run_id, "name": record.name, "image": job.image}
    made["url"] = f"/runs/flow-run/{run.run_id}"
    serves = serves_port(job.document())
    return made | {"session": session_link(run.run_id) if serves else None}


def checked(
    site: Site, server: PrefectServer, caller: Caller, wanted: SubmitRequest
) -> tuple[JobText, Mapping[str, Any]]:
    """The job that is *wanted*, if the site could run it, and the deployment that takes it.

    Raises:
        InvalidInput: Something is wrong with the job, or it is to be somebody else's.
    """
    leads_to, queue = site.ledger.settings.get(LEADS_TO) or {}, wanted.queue or ""
    known = wanted.pool or str(leads_to.get("pool", ""))
    read = job_of(site, wanted.job, caller, pool=known, queue=queue)
    refuse_impossible(site, read, pool=known, queue=queue)  # needs no server
    if queue and (node := site.ledger.nodes.get(queue)) is not None:
        server.have_queue(node.node.pool, queue)  # one that has just joined may have none yet
    goes_to = server.destination(wanted.pool, wanted.queue)
    pool = str(goes_to["work_pool_name"])
    if pool != known:  # it was judged by any pool of the site: others have other images and room
        read = job_of(site, wanted.job, caller, pool=pool, queue=queue)
        refuse_impossible(site, read, pool=pool, queue=queue)
    refuse_missing(site, read, server, pool=pool, queue=queue)
    refuse_shell(site, read, pool=pool, queue=queue)
    return read, goes_to


def end_run(site: Site, server: PrefectServer, caller: Caller, run: str) -> dict[str, Any]:
    """End a run in Prefect, and in the ledger, which its node follows.

    Returns:
        What became of it. ``over`` says that it had ended before, ``told`` that Prefect knows.
    """
    found = find_to_cancel(site, server, caller, run)
    check_own(caller, found, run)
    seen, record = found
    view = {"run_id": seen.run_id, "name": seen.name, "over": is_over(seen), "told": True}
    if is_over(seen):
        how = record.exit.message if record is not None and record.exit else ""
        return view | {"state": seen.state_name, "message": how}
    message = f"{CANCELLED_BY_USER}{caller.user} (gateway)"
    note_act(site, caller, "run.cancel", seen.run_id)
    try:
        state = server.cancel(seen.run_id, message)
    except SiteRefused:
        raise  # the ledger is no way round the door
    except SiteUnreachable:
        if record is None:
            raise
        state, view["told"] = "Cancelling", False
    if record is not None:
        cancel_in_ledger(site.ledger, record.run_id, message)
    return view | {"state": state, "message": ""}


def own_run(site: Site, caller: Caller, run: str) -> RunRecord:
    """The run, if *caller* may change it.

    Raises:
        RunUnknown: There is none that the caller sees.
        NotAllowed: It is a team mate's.
        InvalidInput: An operator gave the name of another one's.
    """
    record = site.ledger.runs.find(run, team=seen_team(caller), owner=caller.user)
    check_owner(caller, record.owner, f"run {record.name}")
    refuse_name(caller, record.owner, run, record.run_id)
    return record


def refuse_too_many(site: Site, team: str, user: str, more: int = 1) -> None:
    """Let no team, and no user in it, have too many waiting.

    Raises:
        InvalidInput: With *more* it would.
    """
    limits, waiting = site.policy_settings.team(team), site.ledger.arrays.waiting(team, user)
    refusal = too_many_waiting(more, waiting, team, limits, user=user)
    if refusal is not None:
        raise InvalidInput(refusal.field, refusal.value, refusal.allowed)


def refuse_no_retry(record: RunRecord) -> None:
    """Let only a run be retried that has ended, and of which Prefect knows that.

    Raises:
        InvalidInput: It goes on, or is a part of a gang.
        EndUntold: Prefect will be told in a moment.
    """
    if record.state is RunState.ENDED and record.gang_id is None and record.told_end_at is None:
        raise EndUntold(record.name)
    if why := why_no_retry(record):
        raise InvalidInput("run", record.name, why)


def why_no_retry(record: RunRecord) -> str:
    """Why the run cannot be retried now; empty where it can."""
    if record.gang_id is not None:
        return f"retry the run that leads it: {record.gang_id}"
    if record.state is not RunState.ENDED:
        return f"it is {record.state.value}; only a run that has ended is retried"
    if record.told_end_at is None:
        return "it has ended, but no scheduler has told Prefect so yet; try again in a few seconds"
    return ""


def note_act(
    site: Site, caller: Caller, act: str, subject: str, details: Mapping[str, str] | None = None
) -> None:
    """Note what *caller* is about to do, before Prefect is asked for it."""
    site.ledger.audit_log.write(Act(caller.user, act, subject, details or {}))


_TRIES = 5
"""The run may be granted, requeued or released between the look and the write."""


def cancel_in_ledger(ledger: Ledger, run_id: str, message: str) -> Exit:
    """End a run as cancelled; the first end counts.

    The run's node is called and stops its container; the scheduler tells Prefect.

    Args:
        ledger: The site's.
        run_id: A run that a worker has seen.
        message: Says who asked.

    Returns:
        How the run has ended, which may have happened meanwhile.

    Raises:
        LeaseLost: It changed hands between each look and the write after it.
    """
    exit_ = Exit(ExitKind.CANCELLED, None, cancelled_by(message))
    for _ in range(_TRIES - 1):
        with suppress(LeaseLost):
            return _end(ledger, run_id, exit_)
    return _end(ledger, run_id, exit_)


def _end(ledger: Ledger, run_id: str, exit_: Exit) -> Exit:
    run = ledger.runs.get(run_id)
    exit_ = ledger.runs.finish(run.fence(ledger.leases.of_run(run_id)), exit_, Measurement())
    if run.state in GRANTED and run.node is not None:
        ledger.calls.send([run.node], run_id)
    return exit_


def refuse_shell(site: Site, read: JobText, *, pool: str, queue: str) -> None:
    """Refuse a session that is a shell where all nodes run programs without a container engine.

    Args:
        site: Where.
        read: The job.
        pool: The work pool it goes to.
        queue: Its work queue; one of a node's name binds it to that node.

    Raises:
        InvalidInput: None of them can; says which nodes of the site do.
    """
    session = read.job.session
    if session is None or not session.shell:
        return
    records = site.ledger.nodes.all()
    of_pool = [each for each in records if each.node.pool == pool]
    able = [each for each in of_pool if each.node.name == queue] or of_pool
    lacks = {
        each.node.name for each in records if each.reading and without_engine(each.reading.pythons)
    }
    if not able or not lacks.issuperset(each.node.name for each in able):
        return
    others = [each.node for each in records if each.node.name not in lacks]
    where = ", ".join(f"{node.name} in pool {node.pool}" for node in others)
    allowed = (
        f"{', '.join(each.node.name for each in able)} run programs without a container engine, "
        f"where no shell can be opened beside them; the nodes that have one: {where or 'none'}"
    )
    raise InvalidInput("session.shell", True, allowed, where=read.place("session.shell"))
