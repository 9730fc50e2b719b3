"""The files of ended runs, read from the site's store."""

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from headway.model.run_file import LogPiece, StoredPart, name_from
from headway.node.file_answers import (
    DIGEST,
    DOWNLOADED,
    OUTPUTS,
    FileRequest,
    digest_header,
    missing,
    range_start,
)
from headway.node.shares import in_thread
from headway.node.storing import MANIFEST, log_key, output_key
from headway.staging.store import READ_BYTES, Store


class StoreFiles:
    """Answers from the store, as a node would."""

    def __init__(self, store: Store) -> None:
        """From *store*."""
        self._store = store

    async def log(self, stored: StoredPart, attempt: int, offset: int) -> LogPiece | None:
        """What the attempt's log has from *offset* on; None where it is not in the store."""
        known = (await self._manifest(stored))["logs"].get(str(attempt))
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
        manifest = await self._manifest(stored)
        if asked.what == OUTPUTS:
            listed = ("files", "complete", "left_out", "not_stored")
            return JSONResponse({key: manifest.get(key, []) for key in listed})
        href = asked.what.removeprefix(f"{OUTPUTS}/")
        name = name_from(href)
        file = next((each for each in manifest["files"] if name_from(each["href"]) == name), None)
        if name is None or file is None:
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

    async def _manifest(self, stored: StoredPart) -> dict[str, Any]:
        text = await in_thread(self._store.read, f"{stored.key}/{MANIFEST}")
        found: dict[str, Any] = json.loads(text)
        return found
