"""What is answered to who asks for the files of a run on this node: log, list, one output."""

import json
import re
from base64 import b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headway.clock import Clock
from headway.model.run_file import FROM, LogPiece, OutputFile, name_from
from headway.node.prune import is_run_id
from headway.node.shares import TeamLimiters, in_thread
from headway.run.here import log_bytes, log_path, log_piece
from headway.run.outputs import OpenOutput, list_outputs, open_output
from headway.settings import Settings

LOG, OUTPUTS = "log", "outputs"
ASKING = "team"
"""Of the questions' parameters the one that says for whom the gateway asks."""
DIGEST = "Repr-Digest"
WANT_DIGEST = "Want-Repr-Digest"
_SENT_BYTES = 1 << 18
_SMALL_BYTES = 1 << 20
"""A file of at most so much is sent with its digest unasked."""
_LOOK_EVERY_S = 0.25
_MOST_WAIT_S = 20.0
_MOST_DIGESTS = 10_000
_MOST_HASHING_S = 600.0
"""Some 200 GB; of what is larger, the client makes the digest itself."""
_LISTED_AT_ONCE = 100
_MOST_LISTING_S = 120.0
_RANGE = re.compile(r"bytes=([0-9]{1,18})-")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A question about the files of one run, from whoever may ask it.

    Attributes:
        run_id: The run.
        what: ``log``, ``outputs``, or ``outputs/`` with the address of one.
        params: ``attempt``, ``from``, ``wait`` and ``whole`` of a log.
        headers: With names in lower case.
        head: Whether the body is not wanted.
    """

    run_id: str
    what: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    head: bool = False


class FileAnswers:
    """Answers for one home."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """For the home of *settings*."""
        self._settings = settings
        self._clock = clock
        self._digests: OrderedDict[tuple[str, bytes, str], str] = OrderedDict()
        self._lists = TeamLimiters(1)
        self._hashing = TeamLimiters(1)
        self._reading = TeamLimiters(4)

    async def answer(self, asked: FileRequest) -> Response:
        """The answer; 404 for whatever is not there."""
        if not is_run_id(asked.run_id):
            return missing("no such run")
        if asked.what == LOG:
            return await self._log(asked)
        if asked.what == OUTPUTS:
            return self._list(asked.run_id)
        return await self._output(asked, asked.what.removeprefix(f"{OUTPUTS}/"))

    async def log(
        self, run_id: str, attempt: int, offset: int, *, wait_s: float, whole: bool
    ) -> LogPiece | None:
        """What the log of an attempt has from *offset* on; None where no log is.

        Args:
            run_id: The run, whose id is well formed.
            attempt: Its attempt.
            offset: Where to go on.
            wait_s: So long at most it waits for a byte.
            whole: Nothing more will come: then nothing is held back.
        """
        path = log_path(self._settings, run_id, attempt)
        end_s = self._clock.monotonic_s() + min(wait_s, _MOST_WAIT_S)
        # To look how long it is costs little; only then is it read, and secrets with it.
        while (log_bytes(path) or 0) <= offset and self._clock.monotonic_s() < end_s:  # noqa: ASYNC110 - a file tells nobody that it grew
            await anyio.sleep(_LOOK_EVERY_S)
        if log_bytes(path) is None:
            return None
        read = partial(log_piece, self._settings, run_id, attempt, offset, whole=whole)
        return await in_thread(read)

    async def _log(self, asked: FileRequest) -> Response:
        numbers = [number(asked.params.get(key, "")) for key in ("attempt", "from", "wait")]
        attempt, offset, wait_s = numbers
        if attempt is None or offset is None or wait_s is None:
            return missing("a log is asked for by attempt, from and wait")
        whole = asked.params.get("whole") == "1"
        piece = await self.log(asked.run_id, attempt, offset, wait_s=wait_s, whole=whole)
        if piece is None:
            return missing(f"there is no log of this attempt: {_WHY_NONE}")
        headers = {FROM: str(piece.start)}
        return Response(piece.data, headers=headers, media_type="application/octet-stream")

    async def _output(self, asked: FileRequest, href: str) -> Response:
        name = name_from(href)
        if name is None:
            return missing("no such output")
        try:
            opened = await in_thread(open_output, self._folder(asked.run_id), name)
        except OSError:
            return missing("no such output")
        try:
            return await self._sent(asked, opened)
        except BaseException:
            opened.close()
            raise

    async def _sent(self, asked: FileRequest, opened: OpenOutput) -> Response:
        """The answer with *opened*, which it closes."""
        file = opened.file
        headers = {"ETag": f'"{file.version}"', "Accept-Ranges": "bytes", **DOWNLOADED}
        small = file.size_bytes <= _SMALL_BYTES
        if small or WANT_DIGEST.lower() in asked.headers:
            sha256 = await self._digest(asked, opened)
            headers |= {} if sha256 is None else {DIGEST: digest_header(sha256)}
        start = range_start(asked.headers, file.version)
        if start >= file.size_bytes > 0:
            opened.close()
            wrong = {"Content-Range": f"bytes */{file.size_bytes}"}
            return Response(status_code=416, headers=headers | wrong)
        status = 200
        if start:
            status = 206
            whole = file.size_bytes
            headers["Content-Range"] = f"bytes {start}-{whole - 1}/{whole}"
        headers["Content-Length"] = str(file.size_bytes - start)
        if asked.head:
            opened.close()
            return Response(status_code=status, headers=headers)
        limiter = self._reading.own()
        return ClosingResponse(opened, start, limiter, status_code=status, headers=headers)

    async def _digest(self, asked: FileRequest, opened: OpenOutput) -> str | None:
        key = (asked.run_id, opened.file.name, opened.file.version)
        found = self._digests.get(key)
        if found is None:
            found = await self._hashed(opened)
            if found is not None:
                self._digests[key] = found
                if len(self._digests) > _MOST_DIGESTS:
                    self._digests.popitem(last=False)
        return found

    def _list(self, run_id: str) -> Response:
        def find() -> tuple[Sequence[OutputFile], Mapping[str, Any]] | None:
            found = list_outputs(self._folder(run_id))
            if found is None:
                return None
            rest = {"complete": found.complete, "left_out": found.left_out, "not_stored": []}
            return found.files, rest

        def document(file: OutputFile) -> dict[str, Any]:
            return file_document(file, self._digests.get((run_id, file.name, file.version)))

        return ListResponse(find, self._lists.own(), document)

    async def _hashed(self, opened: OpenOutput) -> str | None:
        """The SHA-256 of all of it; given up when nobody waits for it, or it takes too long."""

        def is_given_up() -> bool:
            anyio.from_thread.check_cancelled()  # raises where it is
            return False

        with anyio.move_on_after(_MOST_HASHING_S):
            limiter = self._hashing.own()
            return await anyio.to_thread.run_sync(opened.sha256, is_given_up, limiter=limiter)
        return None

    def _folder(self, run_id: str) -> Path:
        return self._settings.runs_dir / run_id


DOWNLOADED = {
    "Content-Type": "application/octet-stream",
    "Content-Disposition": "attachment",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox",
}
"""A program wrote it: a browser must not take it for a page of the site's own."""


_WHY_NONE = (
    "its program never started, or they were removed since; `headway show RUN` says how each "
    "attempt ended, and where its log is"
)


class ListResponse(Response):
    """A run's outputs as JSON, in pieces that keep nobody waiting."""

    def __init__(
        self,
        find: Callable[[], tuple[Sequence[Any], Mapping[str, Any]] | None],
        limiter: anyio.CapacityLimiter,
        document: Callable[[Any], Any] = lambda file: file,
    ) -> None:
        """Of the files that *find* finds.

        Args:
            find: The files and what else is told; None where nothing of the run is there.
            limiter: Held until all is sent: so long the names are in memory.
            document: What is told of a file.
        """
        super().__init__()
        self._find = find
        self._limiter = limiter
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look, and send what is there; who does not read it is left after a while."""
        with anyio.move_on_after(_MOST_LISTING_S):
            async with self._limiter:
                found = await in_thread(self._find)
                answer = missing(f"there are no outputs of this run: {_WHY_NONE}")
                if found is not None:
                    answer = StreamingResponse(self._pieces(*found), media_type="application/json")
                await answer(scope, receive, send)

    async def _pieces(self, files: Sequence[Any], rest: Mapping[str, Any]) -> AsyncIterator[bytes]:
        yield b'{"files":['
        for at in range(0, len(files), _LISTED_AT_ONCE):
            text = await in_thread(self._listed, files[at : at + _LISTED_AT_ONCE])
            yield b"," + text if at else text
        yield b"]," + json.dumps(rest).encode()[1:]

    def _listed(self, files: Sequence[Any]) -> bytes:
        """Some files of the list, without the brackets."""
        return json.dumps([self._document(each) for each in files]).encode()[1:-1]


class ClosingResponse(StreamingResponse):
    """Sends an output from an offset on, as long as it was when it was opened, and closes it."""

    def __init__(
        self,
        opened: OpenOutput,
        start: int,
        limiter: anyio.CapacityLimiter,
        *,
        status_code: int,
        headers: Mapping[str, str],
    ) -> None:
        """Of *opened*, from *start* on; *limiter* has the threads that read."""
        self._opened = opened
        self._limiter = limiter
        self._start = start
        super().__init__(self._pieces(), status_code=status_code, headers=headers)

    async def _pieces(self) -> AsyncIterator[bytes]:
        offset, size = self._start, self._opened.file.size_bytes
        while offset < size:
            length = min(_SENT_BYTES, size - offset)
            read = partial(self._opened.piece, offset, length)
            data = await anyio.to_thread.run_sync(read, limiter=self._limiter)
            if not data:
                return  # it was cut meanwhile: what is sent is too short, and so is no answer
            offset += len(data)
            yield data

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; whatever happens on the way, it is closed."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._opened.close()


def missing(why: str) -> Response:
    """The answer for what is not there."""
    return JSONResponse({"detail": why}, status_code=404)


def number(text: str) -> int | None:
    """A number that is not negative; None for anything else."""
    return int(text) if _NUMBER.fullmatch(text) else None


def digest_header(sha256: str) -> str:
    """The value of `Repr-Digest` (RFC 9530) for a digest in hex."""
    return f"sha-256=:{b64encode(bytes.fromhex(sha256)).decode()}:"


def range_start(headers: Mapping[str, str], version: str) -> int:
    """Where to begin: as `Range` asks, if the file is still the one that it asks for."""
    found = _RANGE.fullmatch(headers.get("range", ""))
    same = headers.get("if-range", f'"{version}"') == f'"{version}"'
    return int(found[1]) if found and same else 0


def file_document(file: OutputFile, sha256: str | None) -> dict[str, Any]:
    """One file of the list."""
    return {
        "path": file.path,
        "href": file.href,
        "bytes": file.size_bytes,
        "modified": file.modified_ns / 1e9,
        "version": file.version,
        "sha256": sha256,
    }
