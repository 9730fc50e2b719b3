"""One question to the program of a session, and its answer, which a compiled parser reads.

The program and its pages are strangers to the gateway. They get nothing by which the gateway
knows the user, and change nothing that the browser keeps of the gateway, whose host they share.
"""

import re
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Final

import anyio
from httptools import HttpParserError, HttpResponseParser

from headway.node.run_ports import ByteStream
from headway.node.shares import LOOP

Headers = list[tuple[bytes, bytes]]

OWN_PREFIX = "headway"
"""How the names of the gateway's own cookies begin."""
_OURS_IN = re.compile(rf'[\s,"]{OWN_PREFIX}[^=\s]*\s*=', re.IGNORECASE)
"""One of them behind another cookie: Python takes a comma or a space for its end, too."""
_OF_ONE_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
_NOT_THE_PROGRAMS = _OF_ONE_HOP | {b"authorization", b"cookie", b"expect", b"forwarded"}
_OF_EVERY_REQUEST = frozenset({b"host", b"content-length"})
"""Whatever a header Connection says of them: a body without its length is another request."""
_OF_THE_HANDSHAKE = b"sec-websocket-"
_NOT_THE_BROWSERS = _OF_ONE_HOP | {
    b"alt-svc", b"clear-site-data", b"nel", b"origin-agent-cluster", b"public-key-pins",
    b"report-to", b"service-worker-allowed", b"strict-transport-security", b"www-authenticate",
}  # fmt: skip
"""Beside those of one hop what changes more than this page: they speak for all of the host, whose
other port the gateway's own pages are on, or for paths of other sessions."""
_COOKIE_PARTS = frozenset({"expires", "max-age", "samesite", "secure", "httponly"})


def for_program(headers: Iterable[tuple[bytes, bytes]], secret: str, scheme: str) -> Headers:
    """The headers of a request as the program gets them.

    Args:
        headers: As the browser sent them, with names in lower case.
        secret: What shows the program that it is the gateway that asks.
        scheme: By which the browser asks the gateway.
    """
    known = list(headers)
    dropped = _NOT_THE_PROGRAMS | (_named_in_connection(known) - _OF_EVERY_REQUEST)
    kept = [
        (name, value)
        for name, value in known
        if name not in dropped and not name.startswith((b"x-forwarded-", _OF_THE_HANDSHAKE))
    ]
    cookies = b"; ".join(value for name, value in known if name == b"cookie").decode("latin-1")
    pairs = map(str.strip, cookies.split(";"))
    own = "; ".join(each for each in pairs if each and not (_ours(each) or _OURS_IN.search(each)))
    if own:
        kept.append((b"cookie", own.encode("latin-1")))
    host = next((value for name, value in known if name == b"host"), b"")
    return [
        *kept,
        (b"authorization", f"Bearer {secret}".encode()),
        (b"x-forwarded-proto", scheme.encode()),
        (b"x-forwarded-host", host),
        (b"connection", b"close"),
    ]


def for_browser(headers: Iterable[tuple[bytes, bytes]], path: str) -> Headers:
    """The headers of an answer as the browser gets them; cookies hold below *path* alone."""
    known = [(name.lower(), value) for name, value in headers]
    dropped = _NOT_THE_BROWSERS | _named_in_connection(known)
    kept: Headers = []
    for name, value in known:
        if name == b"set-cookie":
            cookie = _bound(value.decode("latin-1"), path)
            kept += [(name, cookie.encode("latin-1"))] if cookie else []
        elif name not in dropped:
            kept.append((name, value))
    return kept


def _bound(cookie: str, path: str) -> str:
    """*cookie* for *path* of this very host; empty where it would be the gateway's."""
    pair, *parts = (part.strip() for part in cookie.split(";"))
    if "=" not in pair or _ours(pair) or not pair.partition("=")[0].strip():
        return ""  # a browser sends a cookie without a name back as if its value were one
    if pair.lower().startswith(("__host-", "__secure-", "__http-", "__host-http-")):
        return ""
    kept = [part for part in parts if part.partition("=")[0].strip().lower() in _COOKIE_PARTS]
    return "; ".join((pair, *kept, f"Path={path}"))


def _ours(pair: str) -> bool:
    return pair.strip(' "=\t').lower().startswith(OWN_PREFIX)


def _named_in_connection(headers: Collection[tuple[bytes, bytes]]) -> set[bytes]:
    """Headers that the header Connection declares to be of one hop."""
    values = b",".join(value for name, value in headers if name == b"connection")
    return {each.strip().lower() for each in values.split(b",") if each.strip()}


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
