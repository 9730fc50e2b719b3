"""Which calls of Prefect's API pass the gateway, as a table: what its pages need, and no more.

A path is compared segment by segment with the table, as the client sent it. What is sent on is
put together from the table's own words and the ids and names that fit, never from the path itself:
nothing encoded, doubled or relative gets through.
"""

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.errors import InvalidInput
from headway.gateway.errors import NotAllowed

API = "/api/"
_MOST_LISTED = 1000
"""So many ids or the like one question may have: pages of Prefect ask for some hundred."""


class Treatment(enum.Enum):
    """What becomes of a call."""

    SITE = enum.auto()
    """Passed on. It is about the site; where its body asks for runs too, for the team's alone."""
    RUNS = enum.auto()
    """Passed on, but for the team's runs alone."""
    DEPLOYMENTS = enum.auto()
    """As one about the site, but for the deployment that the caller may start."""
    DEPLOYMENT = enum.auto()
    """Passed on; of any but the one that the caller may start, that there is one."""
    FLOW_IDS = enum.auto()
    """The same for a list of flows in its body: for the flow of that deployment."""
    RUN = enum.auto()
    """Passed on if the caller sees the run in the path."""
    OF_A_RUN = enum.auto()
    """Passed on, and answered if the caller sees the run that the answer belongs to."""
    RUN_IDS = enum.auto()
    """Passed on if the caller sees every run of the list in its body."""
    LOGS = enum.auto()
    """Passed on if the caller sees every run that its filter of logs names."""
    FIXED = enum.auto()
    """Answered by the gateway itself, with what tells nothing."""
    CREATE = enum.auto()
    """A run of `train` is submitted as a job."""
    SET_STATE = enum.auto()
    """One's own run is cancelled, suspended or retried."""
    RESUME = enum.auto()
    """One's own run goes on."""


@dataclass(frozen=True, slots=True)
class Call:
    """A row of the table."""

    method: str
    pattern: str
    """Segments with slashes between; ``{id}`` and ``{name}`` stand for what fits there."""
    treatment: Treatment
    answer: Any = None
    """Of the gateway itself."""


@dataclass(frozen=True, slots=True)
class Found:
    """A call that is in the table."""

    call: Call
    path: str
    """To be sent on: of the table's words, and ids and names that fit."""
    parts: tuple[str, ...] = field(default=())
    """The ids and names of the path."""


def _rows(method: str, treatment: Treatment, *patterns: str, answer: Any = None) -> Iterator[Call]:
    return (Call(method, pattern, treatment, answer) for pattern in patterns)


CALLS = (
    *_rows(
        "GET", Treatment.SITE, "health", "version", "flows/{id}", "flows/name/{name}",
        "work_pools/{name}", "work_pools/{name}/queues/{name}",
    ),
    *_rows("GET", Treatment.DEPLOYMENT, "deployments/{id}", "deployments/name/{name}/{name}"),
    *_rows(
        "POST", Treatment.SITE, "flows/filter", "flows/paginate", "flows/count",
        "work_pools/filter", "work_pools/count",
        "work_pools/{name}/workers/filter", "work_pools/{name}/queues/filter",
        "work_queues/filter",
    ),
    *_rows(
        "POST", Treatment.DEPLOYMENTS, "deployments/filter", "deployments/paginate",
        "deployments/count",
    ),
    *_rows("POST", Treatment.FLOW_IDS, "ui/flows/count-deployments"),
    *_rows(
        "POST", Treatment.RUNS, "flow_runs/filter", "flow_runs/count", "flow_runs/paginate",
        "flow_runs/lateness", "flow_runs/history", "ui/flow_runs/history", "task_runs/filter",
        "task_runs/paginate", "task_runs/count", "task_runs/history", "ui/task_runs/count",
        "ui/task_runs/dashboard/counts", "artifacts/filter", "artifacts/count",
    ),
    *_rows("GET", Treatment.RUN, "flow_runs/{id}", "flow_runs/{id}/graph-v2"),
    *_rows("GET", Treatment.OF_A_RUN, "task_runs/{id}", "ui/task_runs/{id}", "artifacts/{id}"),
    *_rows("POST", Treatment.LOGS, "logs/filter"),
    *_rows("POST", Treatment.RUN_IDS, "ui/flow_runs/count-task-runs"),
    *_rows("GET", Treatment.FIXED, "admin/settings", answer={}),
    *_rows("GET", Treatment.FIXED, "automations/related-to/{name}", answer=[]),
    *_rows(
        "POST", Treatment.FIXED, "automations/filter", "block_documents/filter",
        "saved_searches/filter", "events/count-by/event", "events/count-by/time", answer=[],
    ),
    *_rows("POST", Treatment.FIXED, "automations/count", "block_documents/count", answer=0),
    *_rows("POST", Treatment.FIXED, "ui/flows/next-runs", answer={}),
    # The form asks before it sends. What it sends is checked as a job.
    *_rows("POST", Treatment.FIXED, "ui/schemas/validate", answer={"valid": True, "errors": []}),
    *_rows(
        "POST", Treatment.FIXED, "events/filter",
        answer={"events": [], "total": 0, "next_page": None},
    ),
    *_rows("POST", Treatment.CREATE, "deployments/{id}/create_flow_run"),
    *_rows("POST", Treatment.SET_STATE, "flow_runs/{id}/set_state"),
    *_rows("POST", Treatment.RESUME, "flow_runs/{id}/resume"),
)  # fmt: skip
"""Everything that passes. What is not here is refused."""

_FITS = {
    "{id}": re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "{name}": re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,126}"),
}


def find(method: str, raw_path: str) -> Found | None:
    """The call of the table that *method* and the path, as it was sent, are; None: refused."""
    if not raw_path.startswith(API):
        return None
    given = raw_path.removeprefix(API).split("/")
    for call in CALLS:
        wanted = call.pattern.split("/")
        if call.method != method or len(wanted) != len(given):
            continue
        if all(_fits(want, have) for want, have in zip(wanted, given, strict=True)):
            parts = (have for want, have in zip(wanted, given, strict=True) if want in _FITS)
            return Found(call, "/" + "/".join(given), tuple(parts))
    return None


def _fits(wanted: str, given: str) -> bool:
    pattern = _FITS.get(wanted)
    return given == wanted if pattern is None else pattern.fullmatch(given) is not None


def narrowed(body: Mapping[str, Any], team: str, *, always: bool) -> dict[str, Any]:
    """*body* of a question, which asks for runs of *team* alone.

    Args:
        body: As the client sent it.
        team: Whose runs may be told of.
        always: Whether the answer is about runs. Otherwise only a body that names runs is
            changed: such a question would tell whether there is a run like that.

    Raises:
        NotAllowed: Its filter is an alternative, which another condition does not narrow.
    """
    runs = body.get("flow_runs")
    if not always and runs is None and body.get("task_runs") is None:
        return dict(body)
    runs = _object("flow_runs", runs)
    tags = _object("flow_runs.tags", runs.get("tags"))
    known = tags.get("all_") or []
    if not isinstance(known, list):
        raise NotAllowed("flow_runs.tags.all_ is no list")
    both = {**tags, "all_": [*known, team_tag(team)]}
    return {**body, "flow_runs": {**runs, "tags": both}}


def of_deployment(body: Mapping[str, Any], deployment: str) -> dict[str, Any]:
    """*body* of a question about deployments, which asks for this one alone.

    Raises:
        NotAllowed: Its filter is an alternative, which another condition does not narrow.
    """
    asked = _object("deployments", body.get("deployments"))
    ids = _object("deployments.id", asked.get("id"))
    wanted = ids.get("any_")
    both = [deployment] if wanted is None or deployment in wanted else []
    return {**body, "deployments": {**asked, "id": {**ids, "any_": both}}}


def without_content(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """An operator's *deployment*, to which a page may lead: what it is called, and no more.

    Its parameters may hold what nobody else is to know, and a schedule another team's job.
    """
    return {
        key: value if key in _OF_ANY_DEPLOYMENT else _EMPTY.get(type(value))
        for key, value in deployment.items()
    }


def of_flow(body: Mapping[str, Any], flow: str) -> dict[str, Any]:
    """*body* of a question about a list of flows, which asks for this one alone."""
    asked = body.get("flow_ids")
    return {**body, "flow_ids": [flow] if isinstance(asked, list) and flow in asked else []}


def check_question(body: Mapping[str, Any]) -> None:
    """Refuse what Prefect's server does not take: it would say that it is busy, or break off.

    Raises:
        InvalidInput: There is a NUL in one of its texts, which no database takes, or a list of
            more than a thousand.
    """
    left: list[Any] = [body]
    while left:
        value = left.pop()
        if isinstance(value, str) and "\0" in value:
            raise InvalidInput("body", value, "leave the character NUL out")
        if isinstance(value, Mapping):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            if len(value) > _MOST_LISTED:
                allowed = f"ask for at most {_MOST_LISTED} at once"
                raise InvalidInput("body", f"a list of {len(value)}", allowed)
            left += value


def team_tag(team: str) -> str:
    """The tag of a team's runs in Prefect, which the gateway sets and nobody else may."""
    return f"team:{team}"


def _object(name: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise NotAllowed(f"{name} is no object")
    if value.get("operator", "and_") != "and_":
        raise NotAllowed(f"{name} joins its conditions with {value['operator']}; use and_")
    return value


def named_runs(treatment: Treatment, body: Mapping[str, Any]) -> list[str]:
    """Ids of the runs that the body of a question names, where Prefect reads them for it.

    A name that Prefect leaves unread must not count: the question would be about every run.

    Raises:
        NotAllowed: It names none, or asks for others beside them.
    """
    if treatment is Treatment.LOGS:
        runs = _object("logs", body.get("logs")).get("flow_run_id")
        ids = _object("logs.flow_run_id", runs).get("any_")
    else:
        ids = body.get("flow_run_ids")
    if not isinstance(ids, list) or not ids or not all(map(_is_id, ids)):
        raise NotAllowed("a question about logs or tasks has to name its runs")
    return ids


def _is_id(given: object) -> bool:
    return isinstance(given, str) and _FITS["{id}"].fullmatch(given) is not None


_OF_ANY_DEPLOYMENT = frozenset(
    {"id", "created", "updated", "name", "flow_id", "paused", "status", "work_pool_name"}
    | {"work_queue_name", "work_queue_id"}
)
_EMPTY: Mapping[type, Any] = {dict: {}, list: []}
_OPERATORS: Mapping[str, Any] = {"job_variables": {}, "pull_steps": None, "base_job_template": {}}


def without_settings(document: Any) -> Any:
    """*document* without what an operator has set for processes: it may hold secrets."""
    if isinstance(document, list):
        return [without_settings(each) for each in document]
    if not isinstance(document, dict):
        return document
    return {
        key: _OPERATORS[key] if key in _OPERATORS else without_settings(value)
        for key, value in document.items()
    }
