"""The files of ended runs, read from the site's store."""

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from headway.model.run_file import LogPiece, StoredPart, name_from
from headway.node.file_answers import (
    DIGEST,
    DOWNLOADED,
    OUTPUTS,
    FileRequest,
    ListResponse,
    digest_header,
    missing,
    range_start,
)
from headway.node.shares import TeamLimiters, in_thread
from headway.node.storing import MANIFEST, log_key, output_key
from headway.staging.store import READ_BYTES, Store

_BEGIN = '{"files": ['
"""Of each manifest, as `headway.node.storing` writes it."""


class StoreFiles:
    """Answers from the store, as a node would."""

    def __init__(self, store: Store) -> None:
        """From *store*."""
        self._store = store
        self._manifests = TeamLimiters(1)

    async def log(self, stored: StoredPart, attempt: int, offset: int) -> LogPiece | None:
        """What the attempt's log has from *offset* on; None where it is not in the store."""
        known = (await self._looked_up(stored, None))[1]["logs"].get(str(attempt))
        if known is None:
            return None
        start = max(offset, known["start"])
        if start >= known["end"]:
            return LogPiece(b"", offset)
        at = start - known["start"]
        key = log_key(stored.key, attempt)
        return LogPiece(await in_thread(self._store.read, key, at, READ_BYTES), start)

    async def answer(self, stored: StoredPart, asked: FileRequest) -> Response:
        """The list, or one output."""
        if asked.what == OUTPUTS:
            return ListResponse(lambda: self._listed(stored), self._manifests.own())
        name = name_from(asked.what.removeprefix(f"{OUTPUTS}/"))
        file = None if name is None else (await self._looked_up(stored, name))[0]
        if file is None:
            return missing("no such output")
        start, size = range_start(asked.headers, file["version"]), file["bytes"]
        headers = {"ETag": f'"{file["version"]}"', "Accept-Ranges": "bytes", **DOWNLOADED}
        headers[DIGEST] = digest_header(file["sha256"])
        if start >= size > 0:
            return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{size}"})
        if start:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        headers["Content-Length"] = str(size - start)
        status = 206 if start else 200
        if asked.head:
            return Response(status_code=status, headers=headers)
        body = self._pieces(output_key(stored.key, file["href"]), start, size)
        return StreamingResponse(body, status_code=status, headers=headers)

    async def _pieces(self, key: str, start: int, size: int) -> AsyncIterator[bytes]:
        while start < size:
            data = await in_thread(self._store.read, key, start, READ_BYTES)
            if not data:
                return  # it is shorter than it was: what is sent is too short, and so is no answer
            start += len(data)
            yield data

    def _listed(self, stored: StoredPart) -> tuple[list[Any], dict[str, Any]]:
        files, manifest = self._manifest(stored)
        listed = ("complete", "left_out", "not_stored")
        return files, {key: manifest.get(key, []) for key in listed}

    async def _looked_up(
        self, stored: StoredPart, name: bytes | None
    ) -> tuple[Any, dict[str, Any]]:
        """The file of this name, if there is one, and what the manifest says beside its files."""

        def look() -> tuple[Any, dict[str, Any]]:
            files, manifest = self._manifest(stored)
            named = () if name is None else files
            return next((each for each in named if name_from(each["href"]) == name), None), manifest

        async with self._manifests.own():
            return await in_thread(look)

    def _manifest(self, stored: StoredPart) -> tuple[list[Any], dict[str, Any]]:
        return read_manifest(self._store.read(f"{stored.key}/{MANIFEST}").decode())


def read_manifest(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The files of a manifest, and what else it says; for which the interpreter is let go often.

    It may be long, and what reads JSON keeps the interpreter from all else until it is through.
    """
    files: list[Any] = []
    at = len(_BEGIN)
    if not text.startswith(_BEGIN) or text.startswith("]", at):
        manifest = json.loads(text)
        return manifest["files"], manifest
    read = json.JSONDecoder().raw_decode
    while True:
        file, at = read(text, at)
        files.append(file)
        if text.startswith("]", at):
            return files, json.loads("{" + text[at + 2 :].lstrip())
        at += len(", ")
