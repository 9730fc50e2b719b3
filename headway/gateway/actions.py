"""What the gateway does for those who may hand in jobs: submit, cancel, retry.

Owner and team come from the token. Each act is noted in the audit table before Prefect is asked
for it: none that happened is missing there.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from headway.errors import InvalidInput, NotAllowed
from headway.gateway.api import seen_team
from headway.gateway.door import Allowed
from headway.gateway.prefect_calls import team_tag
from headway.gateway.submit import allowed_here, job_for, refuse_impossible, refuse_missing
from headway.ledger.audit_log import Act
from headway.ledger.records import RunRecord
from headway.model.access import Caller, Scope
from headway.model.document import Document
from headway.model.job import TrainingJob
from headway.model.job_text import JobText
from headway.model.run import CANCELLED_BY_USER, RunState
from headway.prefect.client import PrefectServer
from headway.scheduler.limits import read_gates
from headway.site import Site

Submitter = Annotated[Caller, Depends(Allowed(Scope.SUBMIT))]
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9 ._:/+-]+$")]


class SubmitRequest(BaseModel):
    """What `POST /v1/runs` takes."""

    model_config = ConfigDict(extra="forbid")

    job: dict[str, Any] = Field(description="The job, with the same fields as a job file.")
    key: Word | None = Field(None, description="Submitting twice with one key gives one run.")
    pool: Word | None = Field(None, description="Work pool, where the site has several.")
    queue: Word | None = Field(None, description="Work queue, or a node to run on.")


def actions(site: Site, server: PrefectServer) -> APIRouter:
    """The routes by which runs of *site* are handed in and changed; *server* is its Prefect."""
    router = APIRouter()

    @router.post("/runs")
    def submit(caller: Submitter, wanted: SubmitRequest) -> dict[str, Any]:
        """Hand in a job; its owner and team are those of the token."""
        return hand_in(site, server, caller, wanted)

    @router.post("/runs/{run}/cancel")
    def cancel(caller: Submitter, run: str) -> dict[str, Any]:
        """End one of one's own runs; its container gets its grace time."""
        record = own_run(site, caller, run, still_going=True)
        if record.state is RunState.ENDED:
            raise InvalidInput("run", record.name, "it has ended; nothing was cancelled")
        note_act(site, caller, "run.cancel", record.run_id)
        state = server.cancel(record.run_id, f"{CANCELLED_BY_USER}{caller.user} (gateway)")
        return {"run_id": record.run_id, "state": state}

    @router.post("/runs/{run}/retry")
    def retry(caller: Submitter, run: str) -> dict[str, Any]:
        """Try one of one's own runs that has ended once more, from its checkpoint."""
        record = own_run(site, caller, run)
        if why := why_no_retry(record):
            raise InvalidInput("run", record.name, why)
        note_act(site, caller, "run.retry", record.run_id)
        state = server.retry(record.run_id, f"retried by user {caller.user} (gateway)")
        return {"run_id": record.run_id, "state": state, "attempt": record.attempt + 1}

    return router


def hand_in(
    site: Site, server: PrefectServer, caller: Caller, wanted: SubmitRequest
) -> dict[str, Any]:
    """Check the job, note the act, create the run, and put it into the ledger as *caller*'s.

    Raises:
        InvalidInput: Something is wrong with the job, or it is to be somebody else's.
    """
    document = stamped(wanted.job, caller)
    read = allowed_here(site, JobText(job_for(site, document), Document(document)))
    job, queue = read.job, wanted.queue or ""
    goes_to = server.destination(wanted.pool, wanted.queue)
    pool = str(goes_to["work_pool_name"])
    refuse_impossible(site, read, pool=pool, queue=queue)
    refuse_missing(site, read, server, pool=pool, queue=queue)
    # Prefect's keys are the site's: with another's key one would be given the other's run.
    key = f"{caller.team}/{caller.user}/{wanted.key}" if wanted.key else None
    told = {"team": caller.team, "image": job.image, **({"key": key} if key else {})}
    note_act(site, caller, "run.submit", job.name, told)
    run = server.submit(
        {"job": job.document()},
        name=job.name,
        tags=[team_tag(job.team)],
        key=key,
        pool=wanted.pool,
        queue=wanted.queue,
    )
    queue = queue or str(goes_to.get("work_queue_name") or "default")
    record = site.ledger.runs.enqueue(
        run.run_id,
        job.document(),
        name=run.name,
        owner=caller.user,
        team=caller.team,
        pool=pool,
        queue=queue,
        priority=read_gates(site.ledger, pool).priorities.get(queue, 0),
        submitted_at=site.ledger.now(),
    )
    return {"run_id": record.run_id, "name": record.name, "url": f"/runs/flow-run/{run.run_id}"}


def stamped(job: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """*job* as *caller*'s.

    Raises:
        InvalidInput: It names another owner or team: to run it as somebody else's than it says
            would be as wrong as to believe it.
    """
    own = {"owner": caller.user, "team": caller.team}
    for field, value in own.items():
        # What a form fills in where nobody has said anything names nobody.
        said = job.get(field, value)
        if said not in (value, TrainingJob.model_fields[field].default):
            allowed = f"it comes from your token, which says {value}: leave it out"
            raise InvalidInput(field, said, allowed)
    return {**job, **own}


def own_run(site: Site, caller: Caller, run: str, *, still_going: bool = False) -> RunRecord:
    """The run, if *caller* may change it.

    Raises:
        RunUnknown: There is none that the caller sees.
        NotAllowed: It is a team mate's.
    """
    record = site.ledger.runs.find(run, still_going=still_going, team=seen_team(caller))
    if record.owner != caller.user and not caller.may(Scope.OPERATE):
        raise NotAllowed(f"run {record.name} is {record.owner or 'nobody'}'s; ask its owner")
    return record


def why_no_retry(record: RunRecord) -> str:
    """Why the run cannot be retried now; empty where it can."""
    if record.gang_id is not None:
        return f"retry the run that leads it: {record.gang_id}"
    if record.state is not RunState.ENDED:
        return f"it is {record.state.value}; only a run that has ended is retried"
    if record.told_end_at is None:
        return "it has ended, but no worker has told Prefect so yet; try again in a few seconds"
    return ""


def note_act(
    site: Site, caller: Caller, act: str, subject: str, details: Mapping[str, str] | None = None
) -> None:
    """Note what *caller* is about to do, before Prefect is asked for it."""
    site.ledger.audit_log.write(Act(caller.user, act, subject, details or {}))
