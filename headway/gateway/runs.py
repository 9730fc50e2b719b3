"""What the gateway answers about runs. A token sees its own team's runs, an operator's sees all."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, TypeAdapter

from headway.gateway.door import Watcher
from headway.gateway.run_lookup import Filter, Found, find_run, find_waiting, list_runs
from headway.ledger.records import RunRecord
from headway.model.access import Caller
from headway.model.progress import ProgressPoint
from headway.model.run import RunState
from headway.prefect.client import PrefectServer
from headway.site import Site
from headway.views.fields import fields
from headway.views.run_details import details
from headway.views.run_document import is_over, run_view
from headway.views.run_history import history_of
from headway.views.run_report import run_report
from headway.views.site_snapshot import RunProgress, progress_of_runs
from headway.views.why_document import why_view

Limit = Annotated[int, Query(ge=1, le=10_000)]
Name = Annotated[str, Query(max_length=200, description="What their names contain.")]
States = Annotated[list[str], Query(max_length=20, description="Names of states of Prefect.")]
Since = Annotated[AwareDatetime | None, Query(description="When they were made, at the earliest.")]
Mine = Annotated[bool, Query(description="Only those of the token's user.")]
Members = Annotated[bool, Query(description="Members of arrays, too, each as a run.")]

_ROW = TypeAdapter(dict[str, Any])
_PLACE = frozenset(
    {
        *("position", "attempt", "resource", "needs_host_memory_bytes", "needs_gpus"),
        *("starts_now", "earliest_start_at", "expected_start_at", "latest_start_at"),
        *("promised_start_at", "predicted_runtime_s"),
    }
)
"""What is told of a place in the queue to other teams: neither whose it is nor any words."""


def of_caller(view: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """A place in the queue; where it is another team's, without whose it is and what it says."""
    if caller.sees(view["team"]):
        return view
    return {key: value if key in _PLACE else None for key, value in view.items()}


def runs_of(site: Site, server: PrefectServer) -> APIRouter:
    """The routes about runs of *site*, whose Prefect is *server*, that change nothing."""
    router = APIRouter()

    @router.get("/runs", response_model=list[dict[str, Any]])
    def runs(
        caller: Watcher,
        limit: Limit = 100,
        name: Name = "",
        state: States = [],  # noqa: B006 - FastAPI copies it
        since: Since = None,
        *,
        mine: Mine = False,
        members: Members = False,
    ) -> Response:
        """The newest runs that the token sees, newest first."""
        states = frozenset(each.lower() for each in state)
        wanted = Filter(name, states, since, caller.user if mine else None, members)
        found = list_runs(site, server, caller, wanted, limit)
        far = _progress(site, [record for _, record in found if record is not None])
        # One by one and here: as a whole they would keep all others of this process waiting.
        rows = b",".join(_ROW.dump_json(_view(each, far)) for each in found)
        return Response(b"[%s]" % rows, media_type="application/json")

    @router.get("/runs/{run}")
    def run(caller: Watcher, run: str) -> dict[str, Any]:
        """One run by id or name: job, steps, demand, lease, prediction and measurement."""
        seen, record = find_run(site, server, caller, run)
        known = details(site, seen, record)
        if known.get("waiting"):
            known["waiting"] = of_caller(known["waiting"], caller)
        return known

    @router.get("/runs/{run}/report")
    def report(caller: Watcher, run: str) -> list[dict[str, Any]]:
        """The sections that the run's page shows, for people: tables with a title."""
        _, record = find_run(site, server, caller, run)
        sections = () if record is None else run_report(history_of(site, record))
        return [fields(section, "title", "columns", "rows") for section in sections]

    @router.get("/runs/{run}/why")
    def why_it_waits(caller: Watcher, run: str) -> dict[str, Any]:
        """Why a run waits: what is scarce, who has it, who is ahead, and what would help.

        Of an array it is its first member that waits. Runs of other teams have no names here.
        """
        return why_view(site, find_waiting(site, caller, run), sees=caller.sees)

    @router.get("/runs/{run}/standing")
    def standing(caller: Watcher, run: str) -> dict[str, Any]:
        """How one run stands, as somebody asks who follows it: little is read for it."""
        found = find_run(site, server, caller, run)
        seen, record = found
        far = _progress(site, [] if record is None else [record])
        view = _view(found, far) | {"message": seen.message, "over": is_over(seen)}
        return view | {"step": None, "progress": None} if record is None else view | _at(record)

    def _at(record: RunRecord) -> dict[str, Any]:
        under_way = [s.name for s in site.ledger.steps.of_run(record.run_id) if s.ended_at is None]
        point = site.ledger.progress.latest(record.run_id)
        holds = record.state in (RunState.CLAIMED, RunState.RUNNING)
        return {
            "step": under_way[-1] if under_way else "starting" if holds else None,
            "progress": None if point is None else fields(point, *_POINT),
        }

    @router.get("/runs/{run}/progress")
    def progress(caller: Watcher, run: str) -> dict[str, Any]:
        """Every progress point of the newest attempt, and the remaining time."""
        _, record = find_run(site, server, caller, run)
        if record is None:
            return {"run_id": run, "attempt": 1, **dict.fromkeys(_FAR), "points": []}
        points = site.ledger.progress.series(record.run_id, record.attempt)
        (progress,) = progress_of_runs(site, [record])
        return {
            **fields(record, "run_id", "attempt"),
            **fields(progress, *_FAR),
            "points": [fields(each, *ProgressPoint._fields) for each in points],
        }

    return router


_FAR = (
    "elapsed_s", "done_frac", "remaining_s", "remaining_low_s", "remaining_high_s", "progress_text",
)  # fmt: skip
_POINT = ("iteration", "epoch", "total", "metrics")


def _progress(site: Site, records: list[RunRecord]) -> dict[str, RunProgress]:
    return {each.record.run_id: each for each in progress_of_runs(site, records)}


def _view(found: Found, far: dict[str, RunProgress]) -> dict[str, Any]:
    seen, record = found
    return run_view(seen, record, far.get(seen.run_id))
