"""What a node answers to another one that asks for a data set of its cache."""

import json
import re
from pathlib import Path

import anyio
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from headway.model.run_file import name_from
from headway.node.file_answers import DOWNLOADED, ClosingResponse, missing
from headway.node.shares import in_thread
from headway.run.outputs import open_output
from headway.settings import Settings
from headway.staging.manifest import DATA, Manifest

_KEY = re.compile(r"[0-9a-f]{64}")
_MOST_AT_ONCE = 16
"""More nodes are not answered at once: they have the source, too."""


class SetAnswers:
    """Answers for one home."""

    def __init__(self, settings: Settings) -> None:
        """For the cache of *settings*."""
        self._sets = settings.cache_dir / "sets"
        self._sending = 0
        self._reading = anyio.CapacityLimiter(4)

    async def serve(self, what: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer to ``KEY``, a list of files, or ``KEY/`` and the address of one of them."""
        self._sending += 1
        try:
            await (await self._answer(what))(scope, receive, send)
        finally:
            self._sending -= 1

    async def _answer(self, what: str) -> Response:
        if self._sending > _MOST_AT_ONCE:
            return JSONResponse({"detail": f"{_MOST_AT_ONCE} others are answered"}, 503)
        key, _, href = what.partition("/")
        if _KEY.fullmatch(key) is None:
            return missing("no such data set")
        if not href:
            return await in_thread(_list, self._sets / key)
        name = name_from(href)
        if name is None:
            return missing("no such file")
        try:
            # As an output of a run's: without an engine, a program may write there.
            opened = await in_thread(open_output, self._sets / key, name, DATA)
        except OSError:
            return missing("no such file")
        headers = {"Content-Length": str(opened.file.size_bytes), **DOWNLOADED}
        return ClosingResponse(opened, 0, self._reading, status_code=200, headers=headers)


def _list(folder: Path) -> Response:
    manifest = Manifest.read(folder)
    if manifest is None or not manifest.hashes:
        return missing("no such data set, or its files have no hashes")
    rows = zip(manifest.files, manifest.hashes, strict=True)
    files = [[each.name, each.size_bytes, sha256] for each, sha256 in rows]
    return Response(json.dumps({"files": files}), media_type="application/json")
