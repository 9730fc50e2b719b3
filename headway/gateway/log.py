"""The log of a run on this node, to those who may see the run; it says where it begins.

Whoever was cut off goes on from there. One coroutine serves each who follows.
"""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from headway.gateway.run_lookup import seen_team
from headway.gateway.runs import Watcher
from headway.ledger.records import RunRecord
from headway.model.run import RunState
from headway.site import Site
from headway.views.logs import AttemptLog, refuse_elsewhere

_POLL_S = 0.5
_QUIET_S = 50.0
"""After so long without a byte a follower is let go, and asks again: proxies cut such streams."""
Attempt = Annotated[int, Query(ge=1, le=1_000_000)]
Offset = Annotated[int, Query(alias="from", ge=0, le=10**18, description="Bytes to skip.")]


def log_of(site: Site) -> APIRouter:
    """The route for the logs of *site*'s runs."""
    router = APIRouter()

    @router.get("/runs/{run}/log", response_class=Response)
    async def log(
        caller: Watcher, run: str, start: Offset = 0, attempt: Attempt = 1, *, follow: bool = False
    ) -> Response:
        """What the program of one attempt wrote, from a byte on.

        The header Headway-From says which byte is the first. 204 where nothing more is there and,
        with follow, nothing more will come; Headway-Next-Attempt says which attempt came after.
        """

        def look() -> RunRecord:
            return site.ledger.runs.find(run, team=seen_team(caller))

        record = await anyio.to_thread.run_sync(look)
        pieces = _Pieces(site, record.run_id, attempt, start)
        first = await pieces.more(follow=follow)
        if first is None:
            newest = (await anyio.to_thread.run_sync(look)).attempt
            later = {"Headway-Next-Attempt": str(attempt + 1)} if newest > attempt else {}
            return Response(status_code=204, headers=later)

        async def body() -> AsyncIterator[bytes]:
            piece: bytes | None = first
            while piece:
                yield piece
                piece = await pieces.more(follow=follow)

        headers = {"Headway-From": str(start), "X-Content-Type-Options": "nosniff"}
        return StreamingResponse(body(), headers=headers, media_type="text/plain")

    return router


class _Pieces:
    """One attempt's log from a byte on."""

    def __init__(self, site: Site, run_id: str, attempt: int, start: int) -> None:
        self._site = site
        self._run_id = run_id
        self._attempt = attempt
        self._skip = start
        self._log = AttemptLog(site, run_id, attempt)

    async def more(self, *, follow: bool) -> bytes | None:
        """What has come since; empty where nothing came for long, None at the end."""
        end_s = self._site.clock.monotonic_s() + _QUIET_S
        while self._site.clock.monotonic_s() < end_s:
            data, over = await anyio.to_thread.run_sync(self._read)
            data, self._skip = data[self._skip :], max(self._skip - len(data), 0)
            if data:
                return data
            if over or not follow:
                return None
            await anyio.sleep(_POLL_S)
        return b""

    def _read(self) -> tuple[bytes, bool]:
        """What is new, and whether that was all. How it stands is read first."""
        record = self._site.ledger.runs.get(self._run_id)
        refuse_elsewhere(self._site, record)
        held = self._site.ledger.leases.of_run(self._run_id)
        ended = record.state is RunState.ENDED and held is None  # its container is gone
        over = ended or record.attempt > self._attempt
        data = b"".join(self._log.new())
        return (data + self._log.rest(), True) if over else (data, False)
