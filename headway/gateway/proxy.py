"""Prefect's API behind the gateway: the calls of `prefect_calls`, for what the token may see."""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from headway.errors import InvalidInput, RunUnknown
from headway.gateway import actions
from headway.gateway import prefect_calls as calls
from headway.gateway.actions import SubmitRequest, note_act
from headway.gateway.door import Watcher
from headway.gateway.errors import NotAllowed
from headway.gateway.prefect_calls import Found, Treatment
from headway.gateway.runs import seen_team
from headway.model.access import Caller, Scope
from headway.model.document import Path, dotted
from headway.model.run import CANCELLED_BY_USER, RunState
from headway.model.strict_json import read_strict
from headway.model.yaml_document import MAX_DEPTH
from headway.node.shares import TeamLimiters
from headway.prefect.client import PrefectServer
from headway.site import Site

_CREATE_IGNORED = frozenset(
    {"name", "tags", "enforce_parameter_schema", "state", "labels", "empirical_policy"}
)
"""What the form sends and a job says by itself, or nothing here goes by; none of it is sent on."""
_AT_ONCE = 8
"""Calls of one team that Prefect is asked together: a slow one holds a thread of the gateway."""
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def prefects_api(site: Site, server: PrefectServer) -> APIRouter:
    """The routes below ``/api`` of *site*, whose Prefect is *server*."""
    router = APIRouter(include_in_schema=False)
    proxy = Proxy(site, server)
    asking = TeamLimiters(_AT_ONCE)

    @router.api_route("/api{path:path}", methods=_METHODS)
    async def passed_on(request: Request, caller: Watcher) -> JSONResponse:
        found = calls.find(request.method, request.scope["raw_path"].decode("latin-1"))
        if found is None:
            raise NotAllowed(
                f"{request.method} {request.url.path} of Prefect's API is the operators'; "
                "headway's own is described at /v1/docs"
            )
        body = await request.json() if request.method == "POST" else {}
        if not isinstance(body, dict):
            raise InvalidInput("body", body, "give an object")
        status, answer = await anyio.to_thread.run_sync(
            proxy.answer, found, body, caller, limiter=asking.own()
        )
        return JSONResponse(answer, status_code=status)

    return router


class Proxy:
    """Carries out what the table says of a call."""

    def __init__(self, site: Site, server: PrefectServer) -> None:
        """For *site*, whose Prefect is *server*."""
        self._site = site
        self._server = server

    def answer(self, found: Found, body: Mapping[str, Any], caller: Caller) -> tuple[int, Any]:
        """Status and document for a call of *caller*.

        Raises:
            NotAllowed: It asks for what its token does not see, or may not do.
        """
        call, parts = found.call, found.parts
        if call.treatment is Treatment.FIXED:
            return 200, call.answer
        acts = {
            Treatment.CREATE: self._create,
            Treatment.SET_STATE: self._set_state,
            Treatment.RESUME: self._resume,
        }
        if (act := acts.get(call.treatment)) is not None:
            if not caller.may(Scope.SUBMIT):
                raise NotAllowed("this needs a token with the scope submit")
            return 200, act(parts[0], body, caller)
        calls.check_question(body)
        if call.treatment is Treatment.RUN:
            self._check_seen([parts[0]], caller)
        elif call.treatment in (Treatment.LOGS, Treatment.RUN_IDS):
            self._check_seen(calls.named_runs(call.treatment, body), caller)
        elif call.method == "POST" and (team := seen_team(caller)) is not None:
            body = self._narrowed(call.treatment, body, team)
        status, answer = self._server.ask(call.method, found.path, body, once=True)
        if call.treatment is Treatment.OF_A_RUN:
            try:
                self._check_seen([str(answer.get("flow_run_id"))], caller)
            except RunUnknown:  # neither whose it is, nor whether there is one
                raise RunUnknown(parts[0]) from None
        if call.treatment is Treatment.DEPLOYMENT and not self._may_start(answer, caller):
            answer = calls.without_content(answer)
        return status, calls.without_settings(answer)

    def _may_start(self, deployment: Mapping[str, Any], caller: Caller) -> bool:
        if seen_team(caller) is None or "id" not in deployment:  # there is no such
            return True
        return bool(deployment["id"] == self._server.destination(None, None)["id"])

    def _narrowed(self, how: Treatment, body: Mapping[str, Any], team: str) -> Mapping[str, Any]:
        """*body* of a question, which asks for what a member of *team* sees."""
        body = calls.narrowed(body, team, always=how is Treatment.RUNS)
        if how not in (Treatment.DEPLOYMENTS, Treatment.FLOW_IDS):
            return body
        deployment = self._server.destination(None, None)
        if how is Treatment.FLOW_IDS:
            return calls.of_flow(body, str(deployment["flow_id"]))
        return calls.of_deployment(body, str(deployment["id"]))

    def _check_seen(self, run_ids: Sequence[str], caller: Caller) -> None:
        if caller.may(Scope.OPERATE):
            return
        known = self._site.ledger.runs.of(run_ids)
        for run_id in run_ids:
            if run_id not in known or not caller.sees(known[run_id].team):
                raise RunUnknown(run_id)

    def _create(self, deployment: str, body: Mapping[str, Any], caller: Caller) -> Any:
        if deployment != self._server.destination(None, None)["id"]:
            raise NotAllowed("of Prefect's deployments only train/default is started here")
        refused = {
            key for key, value in body.items()
            if value and key not in _CREATE_IGNORED | {"parameters", "work_queue_name"}
        }  # fmt: skip
        if _scheduled_time(body.get("state")):
            refused.add("state.state_details.scheduled_time")
        parameters = body.get("parameters")
        if refused or not isinstance(parameters, dict) or set(parameters) != {"job"}:
            names = ", ".join(sorted(refused)) or "parameters other than job"
            raise NotAllowed(f"a run is started with a job and perhaps a queue, without {names}")
        job = plain_values(parameters["job"])
        if not isinstance(job, dict):
            raise InvalidInput("job", job, "give a job's fields")
        queue = body.get("work_queue_name")
        try:
            wanted = SubmitRequest(job=job, queue=queue)
        except ValidationError:
            raise InvalidInput("work_queue_name", queue, "give the name of a queue") from None
        made = actions.submit(self._site, self._server, caller, wanted)
        return calls.without_settings(self._server.ask("GET", f"/flow_runs/{made['run_id']}")[1])

    def _set_state(self, run: str, body: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        record = actions.own_run(self._site, caller, run)
        state = body.get("state")
        kind = (state.get("type"), state.get("name")) if isinstance(state, dict) else (None, None)
        ended = record.state is RunState.ENDED
        match kind:
            case ("CANCELLING" | "CANCELLED", _) if not ended:
                note_act(self._site, caller, "run.cancel", run)
                message = f"{CANCELLED_BY_USER}{caller.user} (gateway)"
                self._server.cancel(run, message)
                actions.cancel_in_ledger(self._site.ledger, run, message)
            case ("SCHEDULED", "AwaitingRetry" | "Retrying") if not actions.why_no_retry(record):
                actions.refuse_too_many(self._site, record.team, record.owner)
                note_act(self._site, caller, "run.retry", run)
                self._server.retry(run, f"retried by user {caller.user} (gateway)")
            case ("PAUSED", "Suspended") if not ended:
                note_act(self._site, caller, "run.suspend", run)
                self._server.suspend(run, f"suspended by user {caller.user} (gateway)")
            case _:
                why = actions.why_no_retry(record) if kind[0] == "SCHEDULED" else ""
                raise NotAllowed(
                    why or "a run that goes on is cancelled or suspended, one that ended retried"
                )
        return self._accepted(run)

    def _resume(self, run: str, _: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        actions.own_run(self._site, caller, run)
        note_act(self._site, caller, "run.resume", run)
        # Its own answer: a run that is not suspended does not go on.
        answer: dict[str, Any] = self._server.ask("POST", f"/flow_runs/{run}/resume", {})[1]
        return answer

    def _accepted(self, run: str) -> dict[str, Any]:
        """What Prefect's pages expect of a change that was made."""
        state = self._server.ask("GET", f"/flow_runs/{run}")[1].get("state")
        return {"status": "ACCEPT", "state": state, "details": {"type": "accept_details"}}


def _scheduled_time(state: object) -> object:
    """When a run that is created in *state* is to start, if that says so."""
    details = state.get("state_details") if isinstance(state, Mapping) else None
    return details.get("scheduled_time") if isinstance(details, Mapping) else None


_KIND = "__prefect_kind"


def plain_values(value: object, path: Path = ()) -> Any:
    """*value*, which lies at *path* of the form, with all that is wrapped in it unwrapped.

    A field that was left empty is left out.

    Raises:
        InvalidInput: What stands there as JSON is none, or it is too deep.
        NotAllowed: It is a template or a variable: what is in those is the operators'.
    """
    if len(path) > MAX_DEPTH:
        raise InvalidInput(dotted(path[:2]), "deeper", f"nest at most {MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        if _KIND in value:
            return _unwrapped(value, path)
        return {
            key: plain_values(below, (*path, key))
            for key, below in value.items()
            if not _is_empty(below)
        }
    if isinstance(value, list):
        return [
            plain_values(below, (*path, position))
            for position, below in enumerate(value)
            if not _is_empty(below)
        ]
    return value


def _is_empty(value: object) -> bool:
    return isinstance(value, Mapping) and _KIND in value and "value" not in value


def _unwrapped(wrapped: Mapping[str, Any], path: Path) -> Any:
    kind, value = wrapped[_KIND], wrapped.get("value")
    if kind not in ("none", "json"):
        name = dotted(path) or "parameters"
        raise NotAllowed(f"{name} is of the kind {kind}; give its value itself, or JSON")
    if kind == "json" and isinstance(value, str):
        try:
            return read_strict(value.encode())
        except InvalidInput as error:
            raise InvalidInput(dotted(path), error.value, error.allowed) from None
    return plain_values(value, (*path, "value"))
