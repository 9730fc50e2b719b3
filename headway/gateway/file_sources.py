"""The files of runs where they are: on the node that has them, or in the site's store."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import httpx
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headway.clock import Clock
from headway.gateway.errors import NodeSilent
from headway.ledger.records import NodeRecord
from headway.model.run_file import FROM, LogPiece, StoredPart, name_from, signed
from headway.node import file_answers as answers
from headway.node.file_answers import OUTPUTS, FileRequest, ListResponse
from headway.node.shares import WHOSE, TeamLimiters, in_thread
from headway.node.storing import MANIFEST, log_key, output_key
from headway.pinning import only
from headway.site import Site
from headway.staging.store import READ_BYTES, Store

_CONNECT_S = 5.0
_ANSWER_S = 60.0
_DIGEST_S = 3600.0
"""A node reads a file as a whole before it says its digest."""
_PASSED_ON = ("range", "if-range", "want-repr-digest")
_STATUSES = frozenset({200, 206, 404, 416})
_PASSED_BACK = frozenset({
    "content-length", "content-type", "content-range", "content-disposition", "etag",
    "accept-ranges", "repr-digest", "x-content-type-options", "content-security-policy",
})  # fmt: skip


class NodeFiles:
    """Asks any node of *site* for files of its runs."""

    def __init__(self, site: Site) -> None:
        """For the gateway of *site*, on whatever machine."""
        self._here = site.settings.node
        self._own = answers.FileAnswers(site.settings, site.clock)
        self._clock: Clock = site.clock
        self._clients: dict[str, tuple[tuple[str, str], httpx.AsyncClient]] = {}
        """Of each node, for the place at which it was when it was asked last."""

    async def log(
        self,
        node: NodeRecord,
        run_id: str,
        attempt: int,
        offset: int,
        *,
        wait_s: float,
        whole: bool,
    ) -> LogPiece | None:
        """What the attempt's log has from *offset* on; see `FileAnswers.log`.

        Raises:
            NodeSilent: The node does not answer, or not as a node of this site.
        """
        if node.node.name == self._here:
            return await self._own.log(run_id, attempt, offset, wait_s=wait_s, whole=whole)
        params = {"attempt": attempt, "from": offset, "wait": int(wait_s), "whole": int(whole)}
        asked = FileRequest(
            run_id, answers.LOG, {key: str(value) for key, value in params.items()}, {}
        )
        found = await self._sent(node, asked)
        try:
            data = await found.aread()
        except httpx.HTTPError as error:
            raise NodeSilent(node.node.name, _words(error)) from error
        finally:
            await found.aclose()
        start = found.headers.get(FROM, "")
        return LogPiece(data, int(start)) if start.isdigit() else None

    async def answer(self, node: NodeRecord, asked: FileRequest) -> Response:
        """What *node* answers to *asked*.

        Raises:
            NodeSilent: It does not answer, or not as a node of this site.
        """
        if node.node.name == self._here:
            return await self._own.answer(asked)
        return _PassedOn(await self._sent(node, asked))

    async def _sent(self, node: NodeRecord, asked: FileRequest) -> httpx.Response:
        """The beginning of the node's answer."""
        name = node.node.name
        if not node.files_url:
            raise NodeSilent(name, "its worker does not serve them")
        # The node shares what it has among those who ask.
        query = urlencode({**asked.params, answers.ASKING: WHOSE.get()})
        target = f"/runs/{asked.run_id}/{asked.what}?{query}"
        method = "HEAD" if asked.head else "GET"
        headers = {key: asked.headers[key] for key in _PASSED_ON if key in asked.headers}
        now_s = self._clock.now().timestamp()
        headers |= signed(node.worker_token, name, method, target, now_s)
        headers["Accept-Encoding"] = "identity"
        answer_s = _DIGEST_S if "want-repr-digest" in headers else _ANSWER_S
        # The signature is of the path to the letter, so nothing may write it another way.
        url = httpx.URL(node.files_url).copy_with(raw_path=target.encode())
        request = httpx.Request(
            method,
            url,
            headers=headers,
            extensions={"timeout": httpx.Timeout(answer_s, connect=_CONNECT_S).as_dict()},
        )
        try:
            found = await self._client(node).send(request, stream=True)
        except httpx.HTTPError as error:
            raise NodeSilent(name, _words(error)) from error
        if found.status_code not in _STATUSES:
            await found.aclose()
            raise NodeSilent(name, f"it answers with HTTP {found.status_code}")
        return found

    async def close(self) -> None:
        """Close all connections to nodes."""
        for _, client in self._clients.values():
            await client.aclose()

    def _client(self, node: NodeRecord) -> httpx.AsyncClient:
        """Connections to the node as it is now; one of before is left to its last answers."""
        place = (node.files_url, node.files_certificate)
        known, client = self._clients.get(node.node.name, (None, None))
        if client is None or known != place:
            client = httpx.AsyncClient(
                verify=only(node.files_certificate) if node.files_certificate else True,
                trust_env=False,
                limits=httpx.Limits(max_connections=200, max_keepalive_connections=50),
            )
            self._clients[node.node.name] = (place, client)
        return client


def _words(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


class _PassedOn(StreamingResponse):
    """A node's answer as it comes, and closed whatever happens on the way."""

    def __init__(self, found: httpx.Response) -> None:
        self._found = found
        headers = {key: text for key, text in found.headers.items() if key in _PASSED_BACK}
        super().__init__(found.aiter_raw(), status_code=found.status_code, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._found.aclose()


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
            return answers.missing("no such output")
        start, size = answers.range_start(asked.headers, file["version"]), file["bytes"]
        headers = {"ETag": f'"{file["version"]}"', "Accept-Ranges": "bytes", **answers.DOWNLOADED}
        headers[answers.DIGEST] = answers.digest_header(file["sha256"])
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
