"""What the gateway answers about the site: nodes, the queue, estimates, metrics.

Everything is read from the ledger, so it answers while Prefect is away.
"""

import json
import shlex
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from headway.choice import Prefer
from headway.choice import document as option_document
from headway.errors import InvalidInput
from headway.gateway.arrays import check_members
from headway.gateway.door import Operator, Watcher, caller
from headway.gateway.errors import NotAllowed
from headway.gateway.estimate import estimate_options
from headway.gateway.runs import NO_NUL, of_caller, seen_team
from headway.gateway.submit import job_of, limit, refuse_impossible
from headway.model.access import Caller
from headway.model.array import Array, array_words, member_job, take_array
from headway.model.document import Document
from headway.model.job import TrainingJob
from headway.model.job_text import job_from_document, job_text, read_job
from headway.model.trace import Trace
from headway.site import Site
from headway.units import KIB, format_size
from headway.views.metrics import exposition
from headway.views.node_document import load_document, node_shown
from headway.views.queue_document import array_lines, line_views
from headway.views.site_snapshot import site_snapshot
from headway.views.top import document
from headway.views.usage import usage_document

Pool = Annotated[
    str, Query(max_length=200, pattern=NO_NUL, description="Work pool; the gateway's own if empty.")
]
_TRACE = TypeAdapter(Trace)


class EstimateRequest(BaseModel):
    """What `POST /v1/estimates` takes."""

    model_config = ConfigDict(extra="forbid")

    job: dict[str, Any] = Field(description="The job, with the same fields as a job file.")
    budget: float | None = Field(None, ge=0, allow_inf_nan=False, description="Most it may cost.")
    deadline_s: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Seconds within which it must end."
    )
    prefer: Prefer = Field(Prefer.FASTEST, description="What the choice is best in.")


_LONGEST_FILE = 32 * KIB


class JobFile(BaseModel):
    """What `POST /v1/job-files` takes."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field("", description="A job file, YAML or JSON.")
    changes: list[str] = Field(
        [], max_length=40, description="`key.sub=value`, each in the place of what the text says."
    )
    command: str = Field("", description="Its command, in one line, as a shell reads it.")
    array: list[str] = Field(
        [], max_length=20, description="Parameters with their values, as `lr=0.1,0.01`."
    )

    def read(self) -> tuple[TrainingJob, Array | None]:
        """The job and the array that it describes.

        Raises:
            InvalidInput: Something is wrong with it.
        """
        length = sum(map(len, (self.text, self.command, *self.changes, *self.array)))
        if length > _LONGEST_FILE:  # what takes long to read keeps the process from others
            allowed = f"give at most {format_size(_LONGEST_FILE)} here, or `headway submit` it"
            raise InvalidInput("job file", format_size(length), allowed)
        try:
            words = shlex.split(self.command)
        except ValueError:
            raise InvalidInput("command", self.command, "close its quotes") from None
        changes = [
            *self.changes,
            *([f"command={json.dumps(words, ensure_ascii=False)}"] if words else []),
        ]
        found = read_job(self.text.strip() or "{}", filename="job file", overrides=changes)
        array = found.array
        if self.array:
            most = {} if array is None else {"at_most": array.at_most}
            array = take_array(Document({"array": array_words(tuple(self.array)) | most}))
        return found.job, array


def reads(site: Site) -> APIRouter:
    """The routes of *site* that change nothing."""
    router = APIRouter()

    @router.get("/me")
    def me(asking: Annotated[Caller, Depends(caller)]) -> dict[str, Any]:
        """Whose the token is, and what it may do."""
        scopes = sorted(each.value for each in asking.scopes)
        return {"user": asking.user, "team": asking.team, "scopes": scopes}

    @router.get("/nodes")
    def nodes(caller: Watcher) -> list[dict[str, Any]]:
        """What each node has, what is promised of it, and what is in use."""
        seen = site.ledger.leases.live(), site.ledger.staged.uses(), site.tables
        now = site.ledger.now()
        views = [node_shown(record, now, *seen) for record in site.ledger.nodes.all()]
        return _of_caller(site, views, caller)

    @router.get("/queue")
    def queue(caller: Watcher, pool: Pool = "") -> list[dict[str, Any]]:
        """The queue of a pool in its order, with reasons; of other teams the places."""
        return [of_caller(view, caller) for view in array_lines(site, line_views(site, pool))]

    @router.get("/traces", response_model=list[dict[str, Any]])
    def traces(caller: Watcher) -> Response:
        """What runs of the caller's team have measured, and what was imported for all."""
        found = (t for t in site.ledger.traces.all() if not t.team or caller.sees(t.team))
        # Beside whom it ran says what other teams run.
        rows = b",".join(_TRACE.dump_json(trace, exclude={"beside"}) for trace in found)
        return Response(b"[%s]" % rows, media_type="application/json")

    @router.get("/top")
    def top(caller: Watcher) -> dict[str, Any]:
        """Nodes, running runs, and those that wait, as `headway top` draws them."""
        seen = document(site)
        return {
            "nodes": _of_caller(site, seen["nodes"], caller),
            "runs": [run for run in seen["runs"] if caller.sees(run["team"])],
            "arrays": [array for array in seen["arrays"] if caller.sees(array["team"])],
            "queue": [of_caller(view, caller) for view in seen["queue"]],
        }

    @router.get("/load")
    def load(_: Watcher) -> dict[str, Any]:
        """How busy the CPUs and GPUs of each node were over the last hour, minute by minute."""
        return load_document(site)

    @router.get("/limits/{field}")
    def limits(_: Watcher, field: str) -> dict[str, str]:
        """What the nodes allow for a field of a job, as the end of a sentence; may be empty."""
        nodes = [each.node for each in site.ledger.nodes.all()]
        return {"field": field, "allowed": limit(field, nodes)}

    @router.get("/metrics", response_class=Response)
    def metrics(_: Operator) -> Response:
        """The site in Prometheus' text format, with the runs of every team."""
        return Response(exposition(site_snapshot(site)), media_type=CONTENT_TYPE_LATEST)

    return router


def choices(site: Site) -> APIRouter:
    """The routes of *site* about where and how large to run a job."""
    router = APIRouter()

    @router.post("/estimates")
    def estimates(caller: Watcher, wanted: EstimateRequest) -> dict[str, Any]:
        """What a job would take, cost and need on each kind of node, the choice marked."""
        read = job_of(site, wanted.job, caller)
        found = estimate_options(
            site,
            read.job,
            budget=wanted.budget,
            deadline_s=wanted.deadline_s,
            prefer=wanted.prefer,
        )
        if not found:
            refuse_impossible(site, read, pool="", queue="")
        return {"options": [option_document(option) for option in found]}

    @router.post("/job-files")
    def job_file(_: Watcher, given: JobFile) -> dict[str, Any]:
        """A job file as plain data, its first member's too, and as text without what is usual."""
        read, array = given.read()
        job = read.document()
        if array is not None:
            check_members(job, array)
        return {
            "job": job,
            "array": array and array.document(),
            "size": array.size if array else 1,
            "member": member_job(job, array.parameters(1)) if array else job,
            "command": shlex.join(read.command),
            "text": job_text(read, array),
        }

    @router.get("/runs/{run}/ways")
    def ways(caller: Watcher, run: str) -> dict[str, Any]:
        """What a run's job would take, cost and need now on each kind of node."""
        record = site.ledger.runs.find(run, team=seen_team(caller), owner=caller.user)
        found = estimate_options(site, job_from_document(record.job))
        return {"run_id": record.run_id, "options": [option_document(each) for each in found]}

    return router


def _of_caller(site: Site, nodes: list[dict[str, Any]], caller: Caller) -> list[dict[str, Any]]:
    """*nodes*, each with those of its runs alone that *caller* sees."""
    known = site.ledger.runs.of([run for node in nodes for run in node["runs"]])
    seen = {run_id for run_id, record in known.items() if caller.sees(record.team)}
    return [
        node
        | {
            "runs": [run for run in node["runs"] if run in seen],
            "gpus": [
                gpu | {"runs": [each for each in gpu["runs"] if each["run_id"] in seen]}
                for gpu in node["gpus"]
            ],
        }
        for node in nodes
    ]


_Name = Annotated[str | None, Field(max_length=63, pattern=NO_NUL)]


def usages(site: Site) -> APIRouter:
    """The routes of *site* about usage: a member sees its own team's, an operator all."""
    router = APIRouter()

    @router.get("/usage")
    def usage(
        caller: Watcher, team: _Name = None, user: _Name = None, month: _Name = None
    ) -> dict[str, Any]:
        """What users held in a month: hours, cost, and what of it was not used."""
        return usage_document(site, team=_asked_team(caller, team), user=user, month=month)

    return router


def _asked_team(caller: Caller, team: str | None) -> str | None:
    """The team that is asked about; every team for None, where *caller* sees them.

    Raises:
        NotAllowed: It is another one's.
    """
    if team is not None and not caller.sees(team):
        raise NotAllowed("this token sees the usage of its own team alone; leave the team out")
    return team if team is not None else seen_team(caller)
