"""What runs left in files, to those who may see the run: log and outputs, from whatever node.

Each answer says where it begins, so whoever was cut off goes on from there.
"""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.convertors import PathConvertor, register_url_convertor

from headway.errors import NodeSilent, OutputMissing, StoreFailed
from headway.gateway.door import Watcher
from headway.gateway.log_tail import LogTail
from headway.gateway.places import Places
from headway.gateway.run_lookup import seen_team
from headway.gateway.standings import Standings
from headway.ledger.records import RunRecord
from headway.model.access import Caller
from headway.model.run_file import FROM, MISSING, MOST_BYTES, NEXT_ATTEMPT, name_from
from headway.node.file_answers import OUTPUTS, FileRequest
from headway.node.shares import in_thread
from headway.site import Site


class _AnyName(PathConvertor):
    """A path with whatever is in it: to Starlette's own, a newline ends an address."""

    regex = "(?s:.*)"


register_url_convertor("any_name", _AnyName())

Attempt = Annotated[int | None, Query(ge=1, le=1_000_000, description="The newest if not given.")]
Offset = Annotated[int, Query(alias="from", ge=0, le=MOST_BYTES, description="Bytes to skip.")]


def run_files(site: Site) -> APIRouter:
    """The routes for the files of *site*'s runs."""
    router = APIRouter()
    places = Places(site)
    standings = Standings(lambda: site.ledger, site.clock)

    @router.get("/runs/{run}/log", response_class=Response)
    async def log(
        caller: Watcher,
        run: str,
        start: Offset = 0,
        attempt: Attempt = None,
        *,
        follow: bool = False,
    ) -> Response:
        """What the program of one attempt wrote, from a byte on.

        The header Headway-From says which byte is the first. 204 where nothing more is there and,
        with follow, nothing more will come; Headway-Next-Attempt says which attempt came after, and
        Headway-Missing why the log of this one cannot be read.
        """
        record = await _find(site, caller, run)
        number = attempt or record.attempt
        tail = LogTail(places, standings, site.clock, record.run_id, number)
        headers = {}
        try:
            first = await tail.more(start, follow=follow)
        except (NodeSilent, OutputMissing, StoreFailed) as error:
            if record.attempt == number:
                raise
            # What came after it can be read all the same.
            first, headers = None, {MISSING: quote(str(error))}
        if first is None:
            standing = await standings.of(record.run_id)
            if standing.attempt > number:
                headers[NEXT_ATTEMPT] = str(number + 1)
            return Response(status_code=204, headers=headers)
        return StreamingResponse(
            tail.pieces(first, follow=follow),
            headers={FROM: str(first.start), "X-Content-Type-Options": "nosniff"},
            media_type="text/plain",
        )

    @router.get("/runs/{run}/outputs", response_class=Response)
    async def outputs(caller: Watcher, run: str, attempt: Attempt = None) -> Response:
        """The files that the run wrote below its outputs, on the node of that attempt."""
        record = await _find(site, caller, run)
        asked = FileRequest(record.run_id, OUTPUTS, {}, {})
        return await _answer(record, attempt, asked)

    @router.get("/runs/{run}/outputs/{path:any_name}", response_class=Response)
    @router.head("/runs/{run}/outputs/{path:any_name}", response_class=Response)
    async def output(
        caller: Watcher, request: Request, run: str, attempt: Attempt = None
    ) -> Response:
        """One of them. Range and If-Range go on where it broke off; HEAD says how large it is.

        Want-Repr-Digest asks for its SHA-256, for which all of it is read.
        """
        record = await _find(site, caller, run)
        # As it was sent: a name may hold any bytes, and must not be read in two ways.
        raw = request.scope["raw_path"].decode("latin-1")
        name = name_from(raw.partition(f"/{OUTPUTS}/")[2])
        if name is None:
            raise OutputMissing(record.run_id, "such output", "its address leads elsewhere")
        what = f"{OUTPUTS}/{quote(name)}"
        head = request.method == "HEAD"
        asked = FileRequest(record.run_id, what, {}, request.headers, head)
        return await _answer(record, attempt, asked)

    async def _answer(record: RunRecord, attempt: int | None, asked: FileRequest) -> Response:
        return await places.answer(await standings.of(record.run_id), attempt, asked)

    return router


async def _find(site: Site, caller: Caller, run: str) -> RunRecord:
    def find() -> RunRecord:
        return site.ledger.runs.find(run, team=seen_team(caller))

    return await in_thread(find)
