"""What the gateway answers to those who watch: runs, nodes, the queue, estimates, metrics.

Everything is read from the ledger, so it answers while Prefect is away. A token sees its own
team's runs, an operator's sees all.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field

from headway.estimate.choice import Prefer, document
from headway.gateway.door import Allowed
from headway.gateway.estimate import estimate_options
from headway.ledger.records import RunRecord
from headway.model.access import Caller, Scope
from headway.model.job_text import job_from_document
from headway.model.progress import ProgressPoint
from headway.site import Site
from headway.views.fields import fields
from headway.views.metrics import exposition
from headway.views.node_document import node_shown
from headway.views.queue_document import line_views
from headway.views.run_details import ledger_details
from headway.views.run_document import exit_view, ledger_state
from headway.views.site_snapshot import progress_of_runs, site_snapshot
from headway.views.why_document import why_view

Watcher = Annotated[Caller, Depends(Allowed(Scope.WATCH))]
Operator = Annotated[Caller, Depends(Allowed(Scope.OPERATE))]
Limit = Annotated[int, Field(ge=1, le=1000)]


class EstimateRequest(BaseModel):
    """What `POST /v1/estimates` takes."""

    model_config = ConfigDict(extra="forbid")

    job: dict[str, Any] = Field(description="The job, with the same fields as a job file.")
    budget: float | None = Field(None, ge=0, allow_inf_nan=False, description="Most it may cost.")
    deadline_s: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Seconds within which it must end."
    )
    prefer: Prefer = Field(Prefer.FASTEST, description="What the choice is best in.")


def reads(site: Site) -> APIRouter:
    """The routes of *site* that change nothing."""
    router = APIRouter()

    @router.get("/runs")
    def runs(caller: Watcher, limit: Limit = 100) -> list[dict[str, Any]]:
        """The newest runs that the token sees, newest first."""
        seen = site.ledger.runs.all(limit=limit, team=seen_team(caller))
        return [_summary(record) for record in seen]

    @router.get("/runs/{run}")
    def run(caller: Watcher, run: str) -> dict[str, Any]:
        """One run by id or name: job, steps, demand, lease, prediction and measurement."""
        record = site.ledger.runs.find(run, team=seen_team(caller))
        known = _summary(record) | ledger_details(site, record)
        if known.get("waiting"):
            known["waiting"] = _of_caller(known["waiting"], caller)
        return known

    @router.get("/runs/{run}/why")
    def why_it_waits(caller: Watcher, run: str) -> dict[str, Any]:
        """Why a run waits: what is scarce, who has it, who is ahead, and what would help.

        Runs of other teams have no names here.
        """
        record = site.ledger.runs.find(run, team=seen_team(caller))
        return why_view(site, record, sees=caller.sees)

    @router.get("/runs/{run}/progress")
    def progress(caller: Watcher, run: str) -> dict[str, Any]:
        """Every progress point of the newest attempt, and the remaining time."""
        record = site.ledger.runs.find(run, team=seen_team(caller))
        points = site.ledger.progress.series(record.run_id, record.attempt)
        (progress,) = progress_of_runs(site, [record])
        return {
            **fields(record, "run_id", "attempt"),
            **fields(progress, "elapsed_s", "done_frac", "remaining_s"),
            "points": [fields(each, *ProgressPoint._fields) for each in points],
        }

    @router.get("/nodes")
    def nodes(caller: Watcher) -> list[dict[str, Any]]:
        """What each node has, what is promised of it, and what is in use."""
        leases = site.ledger.leases.live()
        known = site.ledger.runs.of([lease.run_id for lease in leases])
        seen = {run_id for run_id, record in known.items() if caller.sees(record.team)}
        views = [node_shown(record, leases) for record in site.ledger.nodes.all()]
        return [view | {"runs": [run for run in view["runs"] if run in seen]} for view in views]

    @router.get("/queue")
    def queue(caller: Watcher) -> list[dict[str, Any]]:
        """The queue of this node's pool in its order, with reasons; of other teams the places."""
        return [_of_caller(view, caller) for view in line_views(site)]

    @router.post("/estimates")
    def estimates(_: Watcher, wanted: EstimateRequest) -> dict[str, Any]:
        """What a job would take, cost and need on each kind of node, the choice marked."""
        found = estimate_options(
            site,
            job_from_document(wanted.job),
            budget=wanted.budget,
            deadline_s=wanted.deadline_s,
            prefer=wanted.prefer,
        )
        return {"options": [document(option) for option in found]}

    @router.get("/metrics", response_class=Response)
    def metrics(_: Operator) -> Response:
        """The site in Prometheus' text format, with the runs of every team."""
        return Response(exposition(site_snapshot(site)), media_type=CONTENT_TYPE_LATEST)

    return router


def seen_team(caller: Caller) -> str | None:
    """The team whose runs alone *caller* sees; None where it sees all."""
    return None if caller.may(Scope.OPERATE) else caller.team


_WHOSE = frozenset({"run_id", "name", "owner", "team", "submitted_at", "reason"})


def _of_caller(view: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """A place in the queue; where it is another team's, without whose it is and what it says."""
    if caller.sees(view["team"]):
        return view
    return view | dict.fromkeys(_WHOSE)


def _summary(record: RunRecord) -> dict[str, Any]:
    return {
        **fields(record, "run_id", "name", "owner", "team", "reason", "node", "attempt"),
        "submitted_at": record.submitted_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "state": ledger_state(record),
        "exit": exit_view(record.exit),
    }
