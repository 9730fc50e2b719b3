"""The code of runs as it is sent to the gateway: what is missing, its chunks, and its manifest.

Nothing that a client says of content is believed: a chunk is kept under the SHA-256 that it has,
for the team that sent it, and a manifest once all its chunks are that team's.
"""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response

from headway.errors import InvalidInput, NotAllowed
from headway.gateway.door import Submitter
from headway.model.access import Caller, Scope, checked_name
from headway.model.code import CODE, CodeManifest
from headway.model.code_frames import MOST_FRAMES_BYTES, split
from headway.node.apart import apart
from headway.node.expiry import prune_code
from headway.node.shares import TeamLimiters, in_thread
from headway.policy.code_retention import TEAM_BYTES
from headway.site import Site
from headway.units import format_size

CODE_PATHS = frozenset({"/v1/code", "/v1/code/chunks"})
"""Whose bodies are no JSON documents of the usual size."""
_AT_ONCE = 4
"""Bodies of one user that are read together: each is in memory, and a slow one takes its time."""
_PRUNE_EVERY_S = 60.0
T = TypeVar("T")
Team = Annotated[str, Query(max_length=63, description="The token's own if empty.")]


def code_of(site: Site) -> APIRouter:
    """The routes by which code comes to *site*."""
    router = APIRouter()
    reading, writing = TeamLimiters(_AT_ONCE), TeamLimiters(1)
    keeping = _Keeping(site)

    @router.post("/code", response_model=dict[str, Any])
    async def manifest(caller: Submitter, request: Request, team: Team = "") -> Response:
        """Say which files a folder of code has, as headway's client writes it.

        Its id, and the SHA-256 of the chunks that are missing. Where none is, a job may name it.
        """
        whose = code_team(caller, team)
        async with reading.of(f"{caller.team} {caller.user}"):
            text = await whole_body(request, CODE.manifest_bytes)
            found = await keeping.kept(whose, partial(apart, site, whose, _accept, whose, text))
            return Response(found, media_type="application/json")

    @router.post("/code/chunks")
    async def chunks(caller: Submitter, request: Request, team: Team = "") -> dict[str, int]:
        """Send chunks of files, each after its length in four bytes; how many were new."""
        whose = code_team(caller, team)
        async with reading.of(f"{caller.team} {caller.user}"):
            body = await whole_body(request, MOST_FRAMES_BYTES)
            async with writing.own():
                keep = partial(in_thread, _put, site, whose, body)
                return {"new": await keeping.kept(whose, keep)}

    return router


class _Keeping:
    """Keeps what was sent; where there is no room, what is unused goes, once a minute at most."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._pruned_s: dict[str, float] = {}

    async def kept(self, team: str, keep: Callable[[], Awaitable[T]]) -> T:
        try:
            return await keep()
        except InvalidInput:
            now_s = self._site.clock.monotonic_s()
            if now_s - self._pruned_s.get(team, -_PRUNE_EVERY_S) < _PRUNE_EVERY_S:
                raise
            self._pruned_s[team] = now_s
            if not await apart(self._site, team, prune_code, team):
                raise
            return await keep()


def _accept(site: Site, team: str, text: bytes) -> bytes:
    found = CodeManifest.read(text)
    missing = site.ledger.code.accept(team, found)
    return json.dumps({"code": found.content_id, "missing": missing}).encode()


def _put(site: Site, team: str, body: bytes) -> int:
    return site.ledger.code.put(team, list(split(body)), most_bytes=TEAM_BYTES)


def code_team(caller: Caller, team: str) -> str:
    """Whose code or data it is to be.

    Raises:
        NotAllowed: Another team's, and the caller is no operator.
    """
    if team in ("", caller.team):
        return caller.team
    if not caller.may(Scope.OPERATE):
        raise NotAllowed(f"your token is for team {caller.team}: what another one has is not yours")
    return checked_name("team", team)


async def whole_body(request: Request, most_bytes: int) -> bytes:
    """All that the client sends.

    Raises:
        InvalidInput: More than *most_bytes*; the rest is not read.
    """
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most_bytes:
            most = format_size(most_bytes)
            raise InvalidInput("body", f"more than {most}", f"give at most {most}")
        pieces.append(piece)
    return b"".join(pieces)
