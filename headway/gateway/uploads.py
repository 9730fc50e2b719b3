"""The data and the code that members bring: put, listed and removed, read by the site's nodes.

Nothing that a client says of content is believed: a chunk is kept under the SHA-256 that it has,
for the team that sent it, and gets a name once all of it is that team's.
"""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse, Response

from headway.errors import InvalidInput
from headway.gateway.actions import note_act
from headway.gateway.door import Buckets, OfANode, Submitter, Watcher
from headway.gateway.errors import NotAllowed
from headway.gateway.runs import check_owner
from headway.ledger.uploads import UPLOAD_ROW_BYTES
from headway.model.access import Caller, Scope, checked_name
from headway.model.code import CODE, CodeManifest
from headway.model.code_frames import MOST_FRAMES_BYTES, split
from headway.model.upload import DATA, Upload, UploadManifest
from headway.node.apart import apart
from headway.node.expiry import prune_code, remove_upload
from headway.node.shares import TeamLimiters, in_thread
from headway.policy.code_retention import TEAM_BYTES
from headway.policy.rate_limit import Rate
from headway.site import Site
from headway.units import MIB, format_size
from headway.views.fields import fields

UPLOAD_PATHS = frozenset({"/v1/data", "/v1/data/chunks"})
"""Whose bodies are no JSON documents of the usual size."""
_AT_ONCE = 4
"""Bodies of one user that are read together: each is in memory, and a slow one takes its time."""
_REMOVED = Rate(per_s=0.1, burst=1000)
"""Of one team: each is noted for good, and so is what is put in its place."""
MOST_MANIFESTS_BYTES = 64 * MIB
"""Of one team, which all lie in the ledger: enough for data sets of 3 TiB together."""
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_SHOWN = ("name", "owner", "is_directory", "files", "size_bytes", "put_at", "used_at")

T = TypeVar("T")
Team = Annotated[str, Query(max_length=63, description="The token's own if empty.")]
Name = Annotated[str, Query(pattern=_NAME, description="Of the data set, in its team.")]
Named = Annotated[str, PathParameter(pattern=_NAME)]


def uploads_of(site: Site) -> APIRouter:
    """The routes by which data comes to *site*."""
    router = APIRouter()
    reading, writing = TeamLimiters(_AT_ONCE), TeamLimiters(1)
    removed_lately = Buckets(_REMOVED, site.clock)

    @router.get("/data")
    def listed(caller: Watcher, team: Team = "") -> list[dict[str, Any]]:
        """The data sets that members of the token's team have put."""
        return [shown(each) for each in site.ledger.uploads.all(code_team(caller, team))]

    @router.post("/data", response_model=dict[str, Any])
    async def manifest(
        caller: Submitter, request: Request, name: Name, team: Team = ""
    ) -> Response:
        """Say which files a data set has, as headway's client writes it.

        The SHA-256 of the chunks that are missing. Where none is, a job may name it.
        """
        whose = code_team(caller, team)
        async with reading.of(f"{caller.team} {caller.user}"):
            text = await whole_body(request, DATA.manifest_bytes)
            found = await apart(site, whose, _accept, caller, whose, name, text)
            return Response(found, media_type="application/json")

    @router.post("/data/chunks")
    async def chunk(caller: Submitter, request: Request, team: Team = "") -> dict[str, bool]:
        """Send one chunk of a file; whether it was new."""
        whose = code_team(caller, team)
        async with reading.of(f"{caller.team} {caller.user}"):
            body = await whole_body(request, DATA.chunk_bytes)
            if not body:
                raise InvalidInput("body", "nothing", "give the bytes of a chunk")
            async with writing.own():
                return {"new": await in_thread(site.upload_chunks.put, whose, body)}

    @router.get("/data/chunks/{sha256}")
    def content(
        caller: OfANode,
        sha256: Annotated[str, PathParameter(pattern="^[0-9a-f]{64}$")],
        team: Team,
    ) -> Response:
        """One chunk of a team's, for the nodes of the site that have runs of the team."""
        if not caller.may(Scope.OPERATE) and team not in site.ledger.leases.teams_on(caller.user):
            raise NotAllowed(f"node {caller.user} has no run of team {team}")
        found = site.upload_chunks.read(checked_name("team", team), sha256)
        if found is None:
            return JSONResponse({"detail": "no such chunk"}, 404)
        return Response(found, media_type="application/octet-stream")

    @router.delete("/data/{name}")
    async def removed(caller: Submitter, name: Named, team: Team = "") -> dict[str, Any]:
        """Remove one of one's own data sets that no run needs."""
        whose = code_team(caller, team)
        removed_lately.take(whose)
        return await apart(site, whose, _remove, caller, whose, name)

    return router


def shown(upload: Upload) -> dict[str, Any]:
    """One data set as `headway data ls --json` lists it."""
    return {**fields(upload, *_SHOWN), "uri": f"headway://{upload.name}"}


def _accept(site: Site, caller: Caller, team: str, name: str, text: bytes) -> bytes:
    found = UploadManifest.read(text)
    known = site.ledger.uploads.get(team, name)
    if known is not None and known.content_id != found.content_id:
        raise _taken(known)
    if known is None:
        _check_room(site, team, len(text) + UPLOAD_ROW_BYTES)
    missing = site.upload_chunks.missing(team, found.chunks, lend=known is None)
    if missing:
        site.upload_chunks.check_room(team, [found.chunks[each] for each in missing])
    elif known is None:
        note_act(site, caller, "data.put", name, {"team": team, "content": found.content_id})
        known = site.ledger.uploads.put(team, name, caller.user, found)
        if known.content_id != found.content_id:  # somebody was faster
            raise _taken(known)
    rest = shown(known) if known is not None and not missing else {}
    return json.dumps({"missing": missing, **rest}).encode()


def _check_room(site: Site, team: str, more_bytes: int) -> None:
    """Keep the ledger from being filled: a manifest may name one chunk very often."""
    held = site.ledger.uploads.manifest_bytes(team)
    if held + more_bytes > MOST_MANIFESTS_BYTES:
        allowed = (
            f"the lists of files of team {team}'s data sets may take "
            f"{format_size(MOST_MANIFESTS_BYTES)}, and take {format_size(held)}: "
            "pack many files into few, or remove some data sets by `headway data rm`"
        )
        raise InvalidInput("data", format_size(more_bytes), allowed)


def _taken(known: Upload) -> InvalidInput:
    allowed = (
        f"{known.owner} has put other data under this name, which stays as it is for the runs "
        f"that name it: give another one, or remove it by `headway data rm {known.name}`"
    )
    return InvalidInput("name", known.name, allowed)


def _remove(site: Site, caller: Caller, team: str, name: str) -> dict[str, Any]:
    known = site.ledger.uploads.get(team, name)
    if known is None:
        allowed = f"team {team} has none of this name: `headway data ls` lists them"
        raise InvalidInput("name", name, allowed)
    check_owner(caller, known.owner, f"data set {name}")
    needed = site.ledger.uploads.needed_by(team, name)
    if not needed:
        note_act(site, caller, "data.rm", name, {"team": team})
    if needed or not remove_upload(site, known):
        runs = ", ".join(needed[:5]) or "a run that was just submitted"
        allowed = f"needed by {runs}: cancel that, or wait until it has ended"
        raise InvalidInput("name", name, allowed)
    return shown(known)


CODE_PATHS = frozenset({"/v1/code", "/v1/code/chunks"})
"""Whose bodies are no JSON documents of the usual size."""
_PRUNE_EVERY_S = 60.0


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
            found = await keeping.kept(
                whose, partial(apart, site, whose, _accept_folder, whose, text)
            )
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


def _accept_folder(site: Site, team: str, text: bytes) -> bytes:
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
