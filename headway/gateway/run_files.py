"""What runs left in files, to those who may see the run: log and outputs, from whatever node.

Each answer says where it begins, so whoever was cut off goes on from there.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import quote

import anyio
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.convertors import PathConvertor, register_url_convertor

from headway.clock import Clock
from headway.errors import StoreFailed
from headway.gateway.door import Watcher
from headway.gateway.errors import NodeSilent, OutputMissing
from headway.gateway.file_sources import NodeFiles, StoreFiles
from headway.gateway.runs import seen_team
from headway.ledger import Ledger
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.access import Caller
from headway.model.run import RunState
from headway.model.run_file import (
    FROM,
    MISSING,
    MOST_BYTES,
    NEXT_ATTEMPT,
    LogPiece,
    StoredPart,
    name_from,
)
from headway.node.file_answers import OUTPUTS, FileRequest
from headway.node.shares import in_thread
from headway.node.storing import store_of
from headway.site import Site

_KNOWN_FOR_S = 1.0
_MOST_KNOWN = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands, and where its attempts were."""

    run_id: str
    ended: bool
    attempt: int
    started: Mapping[int, str]
    """The node of each attempt whose container was started."""
    nodes: Mapping[str, NodeRecord]
    held: bool = False
    """Whether it holds a lease: a run that was cancelled has ended, and may write on a little."""
    stored: tuple[StoredPart, ...] = ()
    """What of it is in the site's store."""

    def is_over(self, attempt: int) -> bool:
        """Whether nothing more comes of *attempt*."""
        return (self.ended and not self.held) or self.attempt > attempt

    @property
    def newest_started(self) -> int | None:
        """The last attempt that was started."""
        return max(self.started, default=None)

    def stored_with(self, attempt: int) -> StoredPart | None:
        """The part of it in the store that has *attempt*: that of its node, as it was left last."""
        node = self.started.get(attempt)
        return next(
            (
                part
                for part in reversed(self.stored)
                if part.attempt >= attempt and self.started.get(part.attempt) == node
            ),
            None,
        )

    def place(self, attempt: int) -> NodeRecord | None:
        """The node that has what *attempt* left; None where it was not started.

        Raises:
            NodeSilent: An operator has removed the node.
        """
        name = self.started.get(attempt)
        if name is None:
            return None
        if name not in self.nodes:
            raise NodeSilent(name, "it was removed from the site")
        return self.nodes[name]


@dataclass
class _Known:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    read_s: float = float("-inf")
    standing: Standing | None = None


class Standings:
    """How runs stand, at most a second ago."""

    def __init__(self, ledger: Callable[[], Ledger], clock: Clock) -> None:
        """Read from *ledger*."""
        self._ledger = ledger
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def of(self, run_id: str) -> Standing:
        """How the run stands. Raises `RunUnknown`."""
        known = self._known.setdefault(run_id, _Known())
        self._known.move_to_end(run_id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        async with known.lock:
            if known.standing is None or self._clock.monotonic_s() > known.read_s + _KNOWN_FOR_S:
                known.standing = await in_thread(self._read, run_id)
                known.read_s = self._clock.monotonic_s()
            return known.standing

    def _read(self, run_id: str) -> Standing:
        ledger = self._ledger()
        record = ledger.runs.get(run_id)
        started = {
            each.attempt: each.node
            for each in ledger.attempts.of_run(run_id)
            if each.node is not None and each.started_at is not None
        }
        if record.node is not None and record.started_at is not None:
            started[record.attempt] = record.node
        nodes = {each.node.name: each for each in ledger.nodes.all()}
        ended = record.state is RunState.ENDED
        held = ledger.leases.of_run(run_id) is not None
        stored = tuple(each for each in ledger.stored.of_run(run_id) if each.is_there)
        return Standing(run_id, ended, record.attempt, started, nodes, held, stored)


class Places:
    """All places of one site."""

    def __init__(self, site: Site) -> None:
        """Of *site*."""
        self._nodes = NodeFiles(site)
        store = store_of(site.settings)
        self._store = None if store is None else StoreFiles(store)

    @asynccontextmanager
    async def closed_at_the_end(self, _: object) -> AsyncIterator[None]:
        """Close all connections when the application ends."""
        yield
        await self._nodes.close()

    async def answer(self, standing: Standing, attempt: int | None, asked: FileRequest) -> Response:
        """The answer to a question about the outputs of *attempt*, or of the last that began.

        Raises:
            OutputMissing: It has not begun.
            NodeSilent: The node that has them does not answer.
            StoreFailed: The store does not.
        """
        number = attempt or standing.newest_started
        stored = None if number is None else standing.stored_with(number)
        if stored is not None and self._store is not None:
            return await self._store.answer(stored, asked)
        node = None if number is None else standing.place(number)
        if node is None:
            which = f"its attempt {attempt}" if attempt else "none of its attempts"
            why = f"{which} has {'not ' if attempt else ''}begun"
            raise OutputMissing(standing.run_id, "outputs", why)
        return await self._nodes.answer(node, asked)

    async def log(
        self, standing: Standing, attempt: int, offset: int, *, wait_s: float, whole: bool
    ) -> LogPiece | None:
        """What the attempt's log has from *offset* on, see `FileAnswers.log`; None without any.

        Raises:
            NodeSilent: The node that has it does not answer.
            OutputMissing: It was pruned; only with *whole*.
            StoreFailed: The store does not answer.
        """
        stored = standing.stored_with(attempt)
        if stored is not None and self._store is not None:
            piece = await self._store.log(stored, attempt, offset)
            if piece is not None:
                return piece
        node = standing.place(attempt)
        if node is None:
            return None
        run_id = standing.run_id
        piece = await self._nodes.log(node, run_id, attempt, offset, wait_s=wait_s, whole=whole)
        if piece is None and whole:
            why = f"on node {node.node.name}, where it ran, it is not there: pruned, perhaps"
            raise OutputMissing(run_id, f"log of attempt {attempt}", why)
        return piece


_WAIT_S = 2.0
"""So long a node waits for more of a log before it says that there is none."""
_QUIET_S = 50.0
"""After so long without a byte a follower is let go, and asks again: proxies cut such streams."""
_LASTS_S = 60.0
"""After so long a follower is let go though more comes, and asks again: a token may have ended."""
_PAUSE_S = 0.5


class LogTail:
    """Reads on where it left off; the secrets in it were struck out where it lies."""

    def __init__(
        self, places: Places, standings: Standings, clock: Clock, run_id: str, attempt: int
    ) -> None:
        """Of one *attempt* of the run."""
        self._places = places
        self._standings = standings
        self._clock = clock
        self._run_id = run_id
        self._attempt = attempt

    async def more(self, offset: int, *, follow: bool) -> LogPiece | None:
        """The piece at *offset*; an empty one where there was none for long. None at the end.

        Args:
            offset: Where to go on.
            follow: Wait for more, unless the attempt is over.

        Raises:
            NodeSilent: The node that has the log does not answer.
            OutputMissing: The log of an attempt that is over is not there.
            StoreFailed: The store that has it does not answer.
        """
        end_s = self._clock.monotonic_s() + _QUIET_S
        while self._clock.monotonic_s() < end_s:
            # How it stands is read first: what was written before its end is then read, too.
            standing = await self._standings.of(self._run_id)
            over = standing.is_over(self._attempt)
            wait_s = _WAIT_S if follow and not over else 0.0
            piece = await self._places.log(
                standing, self._attempt, offset, wait_s=wait_s, whole=over
            )
            if piece is not None and piece.data:
                return piece
            if over or not follow:
                return None
            # Not started yet, or what is there is held back: it may be the beginning of a secret.
            await anyio.sleep(_PAUSE_S)
        return LogPiece(b"", offset)

    async def pieces(self, first: LogPiece, *, follow: bool) -> AsyncIterator[bytes]:
        """*first*, and what follows it without a gap."""
        piece: LogPiece | None = first
        offset = first.start
        end_s = self._clock.monotonic_s() + _LASTS_S
        try:
            while piece is not None and piece.data and piece.start == offset:
                yield piece.data
                offset = piece.end
                if follow and self._clock.monotonic_s() >= end_s:
                    return
                piece = await self.more(offset, follow=follow)
        except (NodeSilent, OutputMissing, StoreFailed):
            return  # whoever asks for the rest is told


class _AnyName(PathConvertor):
    """A path with whatever is in it: to Starlette's own, a newline ends an address."""

    regex = "(?s:.*)"


register_url_convertor("any_name", _AnyName())

Attempt = Annotated[int | None, Query(ge=1, le=1_000_000, description="The newest if not given.")]
Offset = Annotated[int, Query(alias="from", ge=0, le=MOST_BYTES, description="Bytes to skip.")]


def run_files(site: Site) -> APIRouter:
    """The routes for the files of *site*'s runs."""
    places = Places(site)
    router = APIRouter(lifespan=places.closed_at_the_end)
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
        return site.ledger.runs.find(run, team=seen_team(caller), owner=caller.user)

    return await in_thread(find)
