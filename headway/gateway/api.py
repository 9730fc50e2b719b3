"""`headway api`: runs, nodes, the queue and estimates over HTTP, and metrics for Prometheus.

Everything is read from the ledger, so it answers while Prefect is away. It
has no accounts: it binds to loopback unless an operator says otherwise.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.errors import HeadwayError, InvalidInput, LedgerUnreachable, RunUnknown
from headway.estimate.choice import Prefer, document
from headway.gateway.estimate import estimate_options
from headway.ledger.records import RunRecord
from headway.model.job_text import job_from_document
from headway.model.progress import ProgressPoint
from headway.model.strict_json import read_strict
from headway.model.yaml_document import MAX_TEXT_BYTES
from headway.site import Site
from headway.units import format_size
from headway.views.fields import fields
from headway.views.metrics import exposition
from headway.views.node_document import node_shown
from headway.views.queue_document import line_views
from headway.views.run_details import ledger_details
from headway.views.run_document import exit_view, ledger_state
from headway.views.site_snapshot import progress_of_runs, site_snapshot


class EstimateRequest(BaseModel):
    """What `POST /estimates` takes."""

    model_config = ConfigDict(extra="forbid")

    job: dict[str, Any] = Field(description="The job, with the same fields as a job file.")
    budget: float | None = Field(None, ge=0, allow_inf_nan=False, description="Most it may cost.")
    deadline_s: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Seconds within which it must end."
    )
    prefer: Prefer = Field(Prefer.FASTEST, description="What the choice is best in.")


Limit = Annotated[int, Field(ge=1, le=1000)]


def create_app(site: Site, *, allowed_hosts: Sequence[str] = ("*",)) -> FastAPI:
    """The application for *site*.

    Args:
        site: Whose ledger is read.
        allowed_hosts: Host headers that are answered: a web page that rebinds its
            name to loopback must not read the site through a user's browser.
    """
    app = FastAPI(title="headway", description="Runs, nodes, the queue and estimates of a site.")
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(allowed_hosts))
    app.add_middleware(StrictBodies)
    app.add_exception_handler(HeadwayError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)

    @app.get("/runs")
    def runs(limit: Limit = 100) -> list[dict[str, Any]]:
        """The newest runs, newest first."""
        return [_summary(record) for record in site.ledger.runs.all(limit=limit)]

    @app.get("/runs/{run}")
    def run(run: str) -> dict[str, Any]:
        """One run by id or name: job, steps, demand, lease, prediction and measurement."""
        record = site.ledger.runs.find(run)
        return _summary(record) | ledger_details(site, record)

    @app.get("/runs/{run}/progress")
    def progress(run: str) -> dict[str, Any]:
        """Every progress point of the newest attempt, and the remaining time."""
        record = site.ledger.runs.find(run)
        points = site.ledger.progress.series(record.run_id, record.attempt)
        (progress,) = progress_of_runs(site, [record])
        return {
            **fields(record, "run_id", "attempt"),
            **fields(progress, "elapsed_s", "done_frac", "remaining_s"),
            "points": [fields(each, *ProgressPoint._fields) for each in points],
        }

    @app.get("/nodes")
    def nodes() -> list[dict[str, Any]]:
        """What each node has, what is promised of it, and what is in use."""
        leases = site.ledger.leases.live()
        return [node_shown(record, leases) for record in site.ledger.nodes.all()]

    @app.get("/queue")
    def queue() -> list[dict[str, Any]]:
        """The queue of this node's pool in its order, with reasons."""
        return line_views(site)

    @app.post("/estimates")
    def estimates(wanted: EstimateRequest) -> dict[str, Any]:
        """What a job would take, cost and need on each kind of node, the choice marked."""
        found = estimate_options(
            site,
            job_from_document(wanted.job),
            budget=wanted.budget,
            deadline_s=wanted.deadline_s,
            prefer=wanted.prefer,
        )
        return {"options": [document(option) for option in found]}

    @app.get("/metrics", response_class=Response)
    def metrics() -> Response:
        """The site in Prometheus' text format."""
        return Response(exposition(site_snapshot(site)), media_type=CONTENT_TYPE_LATEST)

    return app


class StrictBodies:
    """Refuses bodies that are too large or no strict JSON, before anybody else reads them."""

    def __init__(self, app: ASGIApp) -> None:
        """In front of *app*."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a bad body; pass on everything else."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = b""
        more = True
        while more and len(body) <= MAX_TEXT_BYTES:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        try:
            if len(body) > MAX_TEXT_BYTES:
                most = format_size(MAX_TEXT_BYTES)
                raise InvalidInput("body", f"more than {most}", f"give at most {most}")
            read_strict(body)
        except InvalidInput as error:
            await JSONResponse({"detail": str(error)}, status_code=422)(scope, receive, send)
            return
        whole: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def again() -> Message:
            nonlocal whole
            message, whole = whole, None
            return message if message is not None else await receive()

        await self._app(scope, again, send)


def _summary(record: RunRecord) -> dict[str, Any]:
    return {
        **fields(record, "run_id", "name", "reason", "node", "attempt"),
        "submitted_at": record.submitted_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "state": ledger_state(record),
        "exit": exit_view(record.exit),
    }


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    """One line for what FastAPI's own checks refuse."""
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    field = ".".join(str(part) for part in first.get("loc", ("request",)))
    text = str(first.get("msg", error))
    wrong = InvalidInput(field, first.get("input"), text[:1].lower() + text[1:])
    return JSONResponse({"detail": str(wrong)}, status_code=422)


def _refused(_request: Request, error: Exception) -> JSONResponse:
    status = 500
    if isinstance(error, RunUnknown):
        status = 404
    elif isinstance(error, InvalidInput):
        status = 422
    elif isinstance(error, LedgerUnreachable):
        status = 503
    return JSONResponse({"detail": str(error)}, status_code=status)
