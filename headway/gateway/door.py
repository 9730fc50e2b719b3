"""Who comes in: every request shows a token, whatever it asks for, but for a few open paths."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Annotated

import anyio
from fastapi import Depends, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.clock import Clock
from headway.errors import HeadwayError
from headway.gateway.errors import NotAllowed, TokenRefused, TooManyRequests
from headway.gateway.refusals import refusal
from headway.ledger import Ledger
from headway.model import access
from headway.model.access import AccessToken, Caller, looks_like_token, token_digest
from headway.node.shares import LOOP, WHOSE, TeamLimiters, address, in_thread
from headway.policy.rate_limit import Bucket, Rate, take

COOKIE = "headway_token"
"""In which a browser keeps the token, out of reach of scripts."""
_OUR_COOKIE = re.compile(rf"{COOKIE}\s*=", re.IGNORECASE)
PER_TOKEN = Rate(per_s=20.0, burst=200)
"""The pages of Prefect's UI ask about thirty things at once, and every ten seconds."""
PER_TOKEN_FILES = Rate(per_s=200.0, burst=1000)
"""Of questions for one output of a run, or a part of a data set: many have thousands of them."""
PER_ADDRESS = Rate(per_s=1.0, burst=20)
"""Of requests that are not let in."""
_MOST_BUCKETS = 10_000
_REFUSED = 1008
RECHECK_S = 15.0
"""How long what is open already goes on at most once its token is revoked."""
_TWO_LENGTHS = JSONResponse(
    {"detail": "a body has one length: send Content-Length or Transfer-Encoding, not both"},
    status_code=400,
    headers={"Connection": "close"},
)
"""A proxy in front might go by the other one, and take the rest for somebody else's request."""
_ONE_FILE = re.compile(r"/v1/(runs/[^/]+/outputs|data/chunks)/")
_BOUNDED = re.compile(r"/api/.*|/v1/(runs/[^/]+/(log|outputs)|data|code)(/.*)?", re.DOTALL)
"""What may take long to answer, and has bounds of its own."""
AT_ONCE = 4
"""Requests of one team that are worked on together: they compete with all else for the process."""
_HEAVY = re.compile(r"/v1/(rehearsals|estimates|job-files|runs/[^/]+/ways)")
"""What computes for long in the process that answers everybody: one of a team at a time."""
OPEN_AT_ONCE = 100
"""Of one team, of those that may take long; each holds a piece of what it sends."""
_REQUEST_S = 0.5e-3
"""What it takes of the event loop to read a request, know who asks, and answer it: measured. With
the share of `LoopShares` one token, and all strangers of an address, ask 200 times a second."""
_MOST_THREADS = 400
"""Of all teams, of which each has a few of its own."""


class Buckets:
    """How often each of many has asked lately; those that were silent longest are forgotten."""

    def __init__(self, rate: Rate, clock: Clock) -> None:
        """All at the same *rate*."""
        self._rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, who: str) -> None:
        """One more request of *who*.

        Raises:
            TooManyRequests: It may not pass yet.
        """
        before = self._buckets.pop(who, None)
        self._buckets[who], wait_s = take(before, self._clock.monotonic_s(), self._rate)
        if len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
        if wait_s > 0:
            raise TooManyRequests(wait_s)


class Door:
    """Lets a request through with the caller of its token, or answers why it does not."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        ledger: Callable[[], Ledger],
        clock: Clock,
        open_paths: Collection[str],
        login: Callable[[Scope], str],
        rate: Rate = PER_TOKEN,
        at_once: int | None = AT_ONCE,
    ) -> None:
        """In front of *app*; *open_paths*, to the letter, are for everybody.

        Args:
            app: What is asked then.
            ledger: Which knows the tokens.
            clock: Of the rates.
            open_paths: Paths for which no token is needed.
            login: Where whoever opens a page without a token is sent.
            rate: At which one token asks at most.
            at_once: Requests of one team that are worked on together; None for any number.
        """
        self._login = login
        self._app = app
        self._ledger = ledger
        self._open = frozenset(open_paths)
        self._of_tokens = Buckets(rate, clock)
        self._of_files = Buckets(PER_TOKEN_FILES, clock)
        self._of_addresses = Buckets(PER_ADDRESS, clock)
        self._at_once = None if at_once is None else TeamLimiters(at_once)
        self._heavy = TeamLimiters(1)
        self._open_at_once = TeamLimiters(OPEN_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check who asks before anything else of the request is read."""
        if scope["type"] == "lifespan":
            anyio.to_thread.current_default_thread_limiter().total_tokens = _MOST_THREADS
            await self._app(scope, receive, send)
            return
        WHOSE.set(address(scope.get("client")))
        headers = _headers(scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            await _TWO_LENGTHS(scope, receive, send)
            return
        try:
            token = await self._admit(scope)
        except HeadwayError as error:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": _REFUSED})
                return
            answer: Response = refusal(error)
            if isinstance(error, TokenRefused) and _opens_a_page(scope):
                answer = RedirectResponse(self._login(scope), status_code=303)
            await answer(scope, receive, send)
            return
        await self._answered(token, scope, receive, send)

    async def _answered(self, token: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer, for as long as *token* lets its caller in.

        A connection may last for days, and a token be revoked meanwhile.
        """
        if not token:
            await self._app(scope, receive, send)
            return
        team = scope["state"]["caller"].team
        WHOSE.set(team)
        exchange = _Exchange(team, receive, send)
        receive, send = exchange.receive, exchange.send
        with anyio.CancelScope() as allowed:
            watch = asyncio.create_task(self._watch(token, allowed))
            left = asyncio.create_task(exchange.until_left(allowed)) if _reads(scope) else None
            try:
                if scope["type"] == "websocket" or self._at_once is None:
                    await self._app(scope, receive, send)
                else:
                    async with self._limiters(scope["path"], self._at_once).own():
                        await self._app(scope, receive, send)
            finally:
                watch.cancel()
                if left is not None:
                    left.cancel()
        if allowed.cancelled_caught and scope["type"] == "websocket":
            with suppress(RuntimeError):  # it was closed already
                await send({"type": "websocket.close", "code": _REFUSED})

    def _limiters(self, path: str, usual: TeamLimiters) -> TeamLimiters:
        if _HEAVY.fullmatch(path):
            return self._heavy
        return self._open_at_once if _BOUNDED.fullmatch(path) else usual

    async def _watch(self, token: str, allowed: anyio.CancelScope) -> None:
        while not allowed.cancel_called:
            await asyncio.sleep(RECHECK_S)
            with suppress(HeadwayError):  # the ledger is away: nobody knows
                if await in_thread(self._valid, token) is None:
                    allowed.cancel()

    async def _admit(self, scope: Scope) -> str:
        """The token of who asks, who may; empty where anybody may."""
        headers = _headers(scope)
        token, by_cookie = shown_token(headers)
        if why := foreign_page(_method(scope), headers, by_cookie=by_cookie):
            raise NotAllowed(f"{why}; only the gateway's own pages may")
        if scope["path"] in self._open:
            await LOOP.pay(WHOSE.get(), _REQUEST_S)
            return ""
        found = None
        if looks_like_token(token):
            await LOOP.pay(token_digest(token), _REQUEST_S)
            found = await in_thread(self._valid, token)
        if found is None:
            await LOOP.pay(WHOSE.get(), _REQUEST_S)
            self._of_addresses.take(WHOSE.get())
            raise TokenRefused
        buckets = self._of_files if _is_for_a_file(scope) else self._of_tokens
        buckets.take(token_digest(token))
        scope.setdefault("state", {})["caller"] = found.caller
        return token

    def _valid(self, token: str) -> AccessToken | None:
        return self._ledger().access_tokens.valid(token_digest(token))


class _Exchange:
    """One request and its answer, whose bytes wait for their team's share of the event loop."""

    def __init__(self, team: str, receive: Receive, send: Send) -> None:
        self._team = team
        self._receive = receive
        self._send = send
        self._asked = asyncio.Event()
        self._answered = False

    async def receive(self) -> Message:
        message = await self._receive()
        if not message.get("more_body", False):
            self._asked.set()
        await LOOP.moved(self._team, _size(message))
        return message

    async def send(self, message: Message) -> None:
        await self._send(message)
        self._answered = message["type"] == "http.response.body" and not message.get("more_body")
        await LOOP.moved(self._team, _size(message))

    async def until_left(self, answering: anyio.CancelScope) -> None:
        """Cancel the answer once the client has left: nobody waits for it."""
        await self._asked.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._answered:
            answering.cancel()


def _size(message: Message) -> int:
    return len(message.get("body") or message.get("bytes") or message.get("text") or b"")


def shown_token(headers: Mapping[str, str]) -> tuple[str, bool]:
    """The token that a request shows, and whether a cookie has it; empty where none does."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip(), False
    cookies = headers.get("cookie", "")
    if len(_OUR_COOKIE.findall(cookies)) > 1:  # a page of another port of this host has added one
        return "", True
    try:
        kept = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        kept = None
    return (kept.value, True) if kept is not None else ("", False)


def _is_for_a_file(scope: Scope) -> bool:
    return _reads(scope) and _ONE_FILE.match(scope["path"]) is not None


def _reads(scope: Scope) -> bool:
    return scope["type"] == "http" and _method(scope) in ("GET", "HEAD")


def _method(scope: Scope) -> str:
    """Of a request; a WebSocket begins with one that reads."""
    return str(scope.get("method", "GET"))


def _opens_a_page(scope: Scope) -> bool:
    wants = _headers(scope).get("accept", "")
    return (
        scope["method"] == "GET" and "text/html" in wants and not scope["path"].startswith("/api")
    )


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by lower-case names; one that is given twice counts as both, and fits nothing."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def caller(request: Request) -> Caller:
    """Who asks, as the door has found out."""
    found: Caller = request.state.caller
    return found


class Allowed:
    """A dependency of every route: the caller, if its token has a scope."""

    def __init__(self, scope: access.Scope) -> None:
        """The token needs *scope*."""
        self.scope = scope

    def __call__(self, request: Request) -> Caller:
        """The caller.

        Raises:
            NotAllowed: Its token has not the scope.
        """
        found = caller(request)
        if not found.may(self.scope):
            given = ", ".join(sorted(found.scopes)) or "nothing"
            raise NotAllowed(
                f"this needs a token with the scope {self.scope.value}, yours has {given}; "
                "ask an operator for one (`headway user add`)"
            )
        return found


OfANode = Annotated[Caller, Depends(Allowed(access.Scope.NODE))]
Watcher = Annotated[Caller, Depends(Allowed(access.Scope.WATCH))]
Submitter = Annotated[Caller, Depends(Allowed(access.Scope.SUBMIT))]
Operator = Annotated[Caller, Depends(Allowed(access.Scope.OPERATE))]


_READS = frozenset({"GET", "HEAD"})
_OWN = frozenset({"same-origin", "none"})


def foreign_page(method: str, headers: Mapping[str, str], *, by_cookie: bool) -> str:
    """Why a request comes from a page of another origin; empty when it does not.

    Args:
        method: Of the request, such as ``POST``.
        headers: Of the request, by lower-case names.
        by_cookie: Whether a cookie says who asks. A browser sends it whatever page asked, so a
            request that changes something then has to name its page.
    """
    reads = method in _READS
    fetched = headers.get("sec-fetch-site", "none")
    if fetched not in _OWN and not (reads and headers.get("sec-fetch-mode") == "navigate"):
        return f"a page of another origin ({fetched}) asks"
    origin = headers.get("origin")
    if origin is None:
        return "a browser that does not say which page asks" if by_cookie and not reads else ""
    host = headers.get("host", "")
    if origin.lower() in {f"http://{host}".lower(), f"https://{host}".lower()}:
        return ""
    return f"the page {origin} asks"
