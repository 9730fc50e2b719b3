"""One question to the program of a session, and its answer, which a compiled parser reads."""

from collections.abc import AsyncIterator
from typing import Final

import anyio
from httptools import HttpParserError, HttpResponseParser

from headway.gateway.session_headers import Headers
from headway.node.relay import ByteStream
from headway.node.shares import LOOP

_ANSWER_S = 600.0
"""Without a byte."""
_PIECE_BYTES = 1 << 14
"""Parsed at once: in chunks of one byte it takes less than a millisecond."""
_MOST_OTHER_BYTES = 1 << 16
"""On end that are of no body."""
_MOST_INTERIM = 16
"""Answers that only announce one, such as 103."""
_FRAMES = frozenset({b"content-length", b"transfer-encoding"})


class ProgramAnswer:
    """What the program answers; the time to read it is of its team's share of the event loop.

    Attributes:
        status: Of the answer; 0 before its head has come.
        headers: As the program wrote them.
    """

    def __init__(self, program: ByteStream, team: str, *, has_body: bool = True) -> None:
        """From *program* of *team*; an answer to HEAD has no body, whatever its head says."""
        self.status = 0
        self.headers: Headers = []
        self._program: Final = program
        self._team: Final = team
        self._has_body: Final = has_body
        self._parser: Final = HttpResponseParser(self)
        self._unread = memoryview(b"")
        self._other_bytes = 0
        self._interim = 0
        self._pieces: list[bytes] = []
        self._is_whole = False

    async def begin(self) -> None:
        """Read until the head has come.

        Raises:
            ConnectionError: What the program sends is no answer.
            TimeoutError: It sends nothing.
        """
        while not self.status:
            await self._parse()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes; raises as `begin` where it breaks off."""
        while True:
            if self._pieces:
                piece, self._pieces = b"".join(self._pieces), []
                yield piece
            if self._is_whole:
                return
            await self._parse()

    async def _parse(self) -> None:
        """Read a little."""
        if not self._unread:
            with anyio.fail_after(_ANSWER_S):
                self._unread = memoryview(await self._program.receive())
        if not self._unread:
            if not self.status or any(name.lower() in _FRAMES for name, _ in self.headers):
                raise ConnectionError("it closed the connection before its answer was whole")
            self._is_whole = True
            return
        piece, self._unread = self._unread[:_PIECE_BYTES], self._unread[_PIECE_BYTES:]
        self._other_bytes += len(piece)
        began_s = anyio.current_time()
        try:
            self._parser.feed_data(piece)
        except HttpParserError as error:
            if not self._is_whole:  # of what comes behind the answer nothing is read
                raise ConnectionError("its answer is not HTTP/1.1") from error
        await LOOP.pay(self._team, anyio.current_time() - began_s)
        if self._other_bytes > _MOST_OTHER_BYTES:  # the parser keeps a line until it ends
            raise ConnectionError(f"it sent {_MOST_OTHER_BYTES} bytes that are no body")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; one behind the body is none, and is dropped."""
        if not self.status:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the answer, unless this only announces one."""
        status = self._parser.get_status_code()
        if self.status:
            return
        if status < 200:
            self._interim += 1
            if status == 101 or self._interim > _MOST_INTERIM:
                raise HttpParserError
            self.headers = []
        else:
            self.status, self._is_whole = status, not self._has_body

    def on_body(self, body: bytes) -> None:
        """Keep a piece."""
        self._other_bytes = 0
        if not self._is_whole:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """End the answer."""
        self._is_whole = self.status > 0


async def ask(
    program: ByteStream,
    method: str,
    target: bytes,
    headers: Headers,
    body: AsyncIterator[bytes] | None = None,
) -> None:
    """Send a request for *target*, to the letter, and *body* as the headers say it comes.

    A program may answer and close before it has read all.
    """
    chunked = (b"transfer-encoding", b"chunked") in headers
    lines = [b"%s %s HTTP/1.1" % (method.encode(), target), *map(b": ".join, headers), b"", b""]
    try:
        await _send(program, b"\r\n".join(lines))
        if body is None:
            return
        async for piece in body:
            if piece:
                await _send(program, b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            await _send(program, b"0\r\n\r\n")
    except (ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass


async def _send(program: ByteStream, data: bytes) -> None:
    with anyio.fail_after(_ANSWER_S):
        await program.send(data)
