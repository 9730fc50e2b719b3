"""What the gateway answers about arrays, and does for those who submit them."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from headway.errors import InvalidInput
from headway.gateway.actions import (
    SubmitRequest,
    cancel_in_ledger,
    checked,
    note_act,
    refuse_too_many,
    why_no_retry,
)
from headway.gateway.door import Submitter, Watcher
from headway.gateway.job_data import claim_uploads
from headway.gateway.runs import Limit, Mine, Name, Since, check_owner, refuse_name, seen_team
from headway.gateway.submit import claim_code
from headway.ledger.records import ArrayRecord
from headway.model.access import Caller
from headway.model.array import Array, member_job, take_array
from headway.model.document import NOTHING, Document
from headway.model.job_text import job_from_document
from headway.model.run import CANCELLED_BY_USER, ExitKind, RunState
from headway.model.yaml_document import MAX_TEXT_BYTES
from headway.prefect.client import PrefectServer
from headway.site import Site
from headway.units import format_size
from headway.views.array_document import array_views, curves_document, members_document

_NOT_ENDED = (RunState.WAITING, RunState.CLAIMED, RunState.RUNNING)
_RETRIED_AT_ONCE = 50
"""Prefect takes a while for each; a request has to end."""


class RetryRequest(BaseModel):
    """What `POST /v1/arrays/{array}/retry` takes."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(0, ge=0, description="Only members behind this one.")


def arrays_of(site: Site, server: PrefectServer) -> APIRouter:
    """The routes about arrays of *site*, whose Prefect is *server*."""
    router = APIRouter()

    @router.get("/arrays")
    def arrays(
        caller: Watcher,
        limit: Limit = 100,
        name: Name = "",
        since: Since = None,
        *,
        mine: Mine = False,
    ) -> list[dict[str, Any]]:
        """The newest arrays that the token sees, newest first."""
        owner = caller.user if mine else None
        found = site.ledger.arrays.listed(
            limit, team=seen_team(caller), owner=owner, name=name, since=since
        )
        return array_views(site, found)

    @router.get("/arrays/{array}")
    def array_(
        caller: Watcher, array: str, limit: Limit = 10_000, *, members: bool = True
    ) -> dict[str, Any]:
        """One array by id or name; with *members* the first of those that have become runs."""
        found = site.ledger.arrays.find(array, team=seen_team(caller), owner=caller.user)
        if not members:
            return array_views(site, [found])[0]
        return members_document(site, found, limit=limit)

    @router.get("/arrays/{array}/curves")
    def curves(caller: Watcher, array: str, metric: str = "") -> dict[str, Any]:
        """One metric of an array's members over time; the loss, or the first, if none is given."""
        found = site.ledger.arrays.find(array, team=seen_team(caller), owner=caller.user)
        return curves_document(site, found, metric)

    @router.post("/arrays")
    def submission(caller: Submitter, wanted: SubmitRequest) -> dict[str, Any]:
        """Submit a job with an array; its owner and team are those of the token."""
        return submit_array(site, server, caller, wanted)

    @router.post("/arrays/{array}/cancel")
    def cancel(caller: Submitter, array: str) -> dict[str, Any]:
        """End all members of one of one's own arrays; no more of them become runs."""
        record = _own(site, caller, array)
        note_act(site, caller, "array.cancel", record.array_id)
        return _cancel(site, record, f"{CANCELLED_BY_USER}{caller.user} (gateway)")

    @router.post("/arrays/{array}/retry")
    def retry(caller: Submitter, array: str, wanted: RetryRequest) -> dict[str, Any]:
        """Try again what of one's own array did not end well; at most so many at once.

        As long as the answer has a ``next``, ask again for those behind it.
        """
        record = _own(site, caller, array)
        note_act(site, caller, "array.retry", record.array_id)
        why = f"retried by user {caller.user} (gateway)"
        return _retry(site, server, record, wanted.after, why)

    return router


def submit_array(
    site: Site, server: PrefectServer, caller: Caller, wanted: SubmitRequest
) -> dict[str, Any]:
    """Check the job as its first member has it, note the act, and keep the array as *caller*'s.

    Raises:
        InvalidInput: Something is wrong with the job or its array.
    """
    document = Document(dict(wanted.job))
    array = take_array(document)
    if array is None:
        raise InvalidInput("array", NOTHING, "give the parameters of its members")
    alone = wanted.model_copy(update={"job": document.values})
    refuse_too_many(site, caller.team, caller.user, array.size)
    check_members(document.values, array)
    read, goes_to = checked(site, server, caller, alone)
    job = read.job.document()
    claim_code(site, read)
    claim_uploads(site, read)
    key = f"{caller.team}/{caller.user}/{wanted.key}" if wanted.key else None
    told = {"owner": read.job.owner, "team": read.job.team, "members": str(array.size)}
    note_act(site, caller, "array.submit", read.job.name, told)
    made = site.ledger.arrays.add(
        job,
        array,
        name=read.job.name,
        owner=read.job.owner,
        team=read.job.team,
        pool=str(goes_to["work_pool_name"]),
        queue=wanted.queue or str(goes_to.get("work_queue_name") or "default"),
        key=key,
        submitted_at=site.ledger.now(),
    )
    submitted = {"array_id": made.array_id, "name": made.name, "size": made.size}
    return submitted | {"image": read.job.image}


def check_members(job: Mapping[str, Any], array: Array) -> None:
    """Refuse an array of which a member, with its values filled in, would be no job.

    Each of ten thousand members is not read: the first one, and one that is as long as any.

    Raises:
        InvalidInput: A member is wrong, or longer than a job that is submitted by itself.
    """
    job_from_document(member_job(job, array.parameters(1)))
    longest = member_job(job, array.longest())
    length = len(json.dumps(longest))
    if length > MAX_TEXT_BYTES:
        allowed = f"with its values a member's job may have {format_size(MAX_TEXT_BYTES)}"
        raise InvalidInput("array", f"a member of {format_size(length)}", allowed)
    job_from_document(longest)


def _own(site: Site, caller: Caller, text: str) -> ArrayRecord:
    """The array, if *caller* may change it.

    Raises:
        RunUnknown: There is none that the caller sees.
        NotAllowed: It is a team mate's.
        InvalidInput: An operator gave the name of another one's.
    """
    record = site.ledger.arrays.find(text, team=seen_team(caller), owner=caller.user)
    check_owner(caller, record.owner, f"array {record.name}")
    refuse_name(caller, record.owner, text, record.array_id)
    return record


def _cancel(site: Site, array: ArrayRecord, message: str) -> dict[str, Any]:
    """End the array in the ledger, which every janitor follows; Prefect is told by them.

    First nothing more may come, then what is there ends: asked again, it goes on where it was.
    """
    site.ledger.arrays.cancel(array.array_id, message.removeprefix("cancelled "))
    going = site.ledger.arrays.members(array.array_id, _NOT_ENDED)
    for run in going:
        cancel_in_ledger(site.ledger, run.run_id, message)
    (view,) = array_views(site, [site.ledger.arrays.get(array.array_id)])
    return view | {"ended_now": len(going)}


def _retry(
    site: Site, server: PrefectServer, array: ArrayRecord, after: int, message: str
) -> dict[str, Any]:
    ended = [
        run
        for run in site.ledger.arrays.members(array.array_id, (RunState.ENDED,))
        if (run.array_index or 0) > after and run.exit and run.exit.kind is not ExitKind.OK
    ]
    page = ended[:_RETRIED_AT_ONCE]
    able = [run for run in page if not why_no_retry(run)]
    follow = array.size - array.created if array.cancelled_at else 0
    refuse_too_many(site, array.team, array.owner, len(able) + follow)
    site.ledger.arrays.reopen(array.array_id)
    for run in able:
        server.retry(run.run_id, message)
    return {
        "array_id": array.array_id,
        "name": array.name,
        "retried": len(able),
        "follow": follow,
        "not_yet": len(page) - len(able),
        "next": page[-1].array_index if len(ended) > len(page) else None,
    }
