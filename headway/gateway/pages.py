"""Pages for browsers: the login, and Prefect's own, which find the API behind the gateway."""

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, quote

import anyio
import httpx
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.types import Scope

from headway.errors import SiteUnreachable
from headway.gateway.door import COOKIE, PER_ADDRESS, Buckets
from headway.gateway.errors import NotAllowed, TokenRefused
from headway.model.access import looks_like_token, token_digest
from headway.node.shares import in_thread
from headway.pinning import LOOPBACK
from headway.site import Site

LOGIN = "/v1/login"
SITE_PAGE = "/headway"
_LANDS = re.compile(
    rf"(?!(?:/api|{LOGIN})(?![^/?]))(?:/\w[\w.~=+,-]*)+/?(?:\?[\w.~!$&'()*+,;=:@/?%-]*)?", re.ASCII
)
"""Paths to which a login may lead. No segment is empty, begins with a dot, or has a character that
a browser might read as another one: it stays here, whoever wrote the link to the login."""
_MOST_CHARACTERS = 2000
_NAMES = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,200}){0,8}/?")
_FILE = re.compile(r"\.(?:js|css|svg|png|ico|woff2?|json|txt|webmanifest|map)$")
_NO_PAGES = ("/api", "/v1", "/docs", "/redoc", "/openapi")
_KEPT = ("content-type", "cache-control", "etag")
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_FORM = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>headway</title>
<meta name="viewport" content="width=device-width"><style>
body{{font:16px sans-serif;max-width:26em;margin:15vh auto;padding:0 1em}}
input,button{{font:inherit;width:100%;padding:.5em;margin:.5em 0;box-sizing:border-box}}
</style></head><body><h1>headway</h1><p>{said}</p>
<form method="post"><label>Your token
<input type="password" name="token" autocomplete="current-password" autofocus required></label>
<button>Log in</button></form></body></html>"""


def pages(site: Site, prefect_url: str) -> APIRouter:
    """The login of *site*, and the pages of the Prefect server at *prefect_url*."""
    client = httpx.Client(base_url=prefect_url, timeout=15.0, trust_env=False)

    @asynccontextmanager
    async def closed_at_the_end(_: object) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(client.close)

    router = APIRouter(include_in_schema=False, lifespan=closed_at_the_end)
    tries = Buckets(PER_ADDRESS, site.clock)
    sessions = site.settings.sessions_port

    @router.get("/")
    async def start() -> RedirectResponse:
        return RedirectResponse(SITE_PAGE)

    @router.get(LOGIN)
    async def form(request: Request) -> HTMLResponse:
        return _page(request, sessions, "An operator makes a token with headway user add.")

    @router.post(LOGIN)
    async def log_in(request: Request) -> Response:
        given = parse_qs((await request.body()).decode("latin-1"), max_num_fields=10)
        token = given.get("token", [""])[0].strip()
        try:
            lasts_s = await in_thread(_lasts_s, site, token)
        except TokenRefused:
            # Of bad ones alone: whoever else sends them from this address locks nobody out.
            tries.take(request.client.host if request.client else "")
            refused = "That token is unknown, has expired or was revoked."
            return _page(request, sessions, refused, 401)
        led = RedirectResponse(landing(request.query_params.get("next", "")), status_code=303)
        url = request.url  # a proxy in front of it speaks TLS, which this scheme does not tell
        led.set_cookie(
            COOKIE, token, max_age=int(lasts_s), httponly=True, samesite="strict",
            secure=url.scheme == "https" or url.hostname not in LOOPBACK,
        )  # fmt: skip
        return led

    @router.get("/ui-settings")
    def settings() -> dict[str, Any]:
        """Prefect's pages: where its API is; the cookie says who asks, so they need no password."""
        known = _fetched(client, "/ui-settings", "application/json").json()
        return {**known, "api_url": "/api", "csrf_enabled": False, "auth": None}

    @router.get("/{path:path}")
    def page(request: Request) -> Response:
        """A file of Prefect's pages, or the page that shows what the path says."""
        raw = request.scope["raw_path"].decode("latin-1")
        if _NAMES.fullmatch(raw) is None or raw.lower().startswith(_NO_PAGES):
            raise NotAllowed(f"there is no page at {raw}")
        accept = "*/*" if _FILE.search(raw) else "text/html"
        found = _fetched(client, raw, accept)
        if found.has_redirect_location:  # to the other of Prefect's two sets of pages
            return RedirectResponse(httpx.URL(found.headers["location"]).path)
        headers = {name: found.headers[name] for name in _KEPT if name in found.headers}
        return Response(found.content, found.status_code, {**headers, **_HEADERS})

    return router


def landing(target: str) -> str:
    """Where a login leads that was to lead to *target*: there if it is a page of this gateway."""
    is_ours = len(target) <= _MOST_CHARACTERS and _LANDS.fullmatch(target)
    return target if is_ours else SITE_PAGE


def login_to(target: str) -> str:
    """The login that leads to the page *target* of this gateway."""
    return f"{LOGIN}?next={quote(landing(target), safe='')}"


def login_for(scope: Scope) -> str:
    """The login that leads to what *scope* asks for."""
    query = scope["query_string"].decode("latin-1")
    return login_to(scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""))


def _lasts_s(site: Site, token: str) -> float:
    """Seconds until *token* expires. Raises `TokenRefused`."""
    known = (
        site.ledger.access_tokens.valid(token_digest(token)) if looks_like_token(token) else None
    )
    if known is None:
        raise TokenRefused
    return (known.expires_at - site.ledger.now()).total_seconds()


def _fetched(client: httpx.Client, path: str, accept: str) -> httpx.Response:
    try:
        return client.get(path, headers={"Accept": accept}, follow_redirects=False)
    except httpx.TransportError as error:
        raise SiteUnreachable(str(client.base_url), type(error).__name__) from error


def _page(request: Request, sessions_port: int, said: str, status: int = 200) -> HTMLResponse:
    # To a session's page a login leads by the gateway's link: Chromium asks for each step's origin.
    own = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action "
           f"'self' {request.url.hostname}:{sessions_port}; frame-ancestors 'none'"}  # fmt: skip
    headers = {**_HEADERS, **own, "Cache-Control": "no-store"}
    return HTMLResponse(_FORM.format(said=said), status, headers)


_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    # Asked for anew each time, answered with 304: no page of before an upgrade stays.
    "Cache-Control": "no-cache",
}


def page_files() -> dict[str, bytes]:
    """The files of the page by name."""
    folder = resources.files("headway.gateway") / "page"
    return {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in _KINDS
    }


def site_page() -> APIRouter:
    """The routes of the page. What it shows comes from the API, by the caller's own token."""
    router = APIRouter(include_in_schema=False)
    files = page_files()
    tags = {name: f'"{hashlib.sha256(data).hexdigest()[:32]}"' for name, data in files.items()}

    @router.delete(LOGIN)
    async def log_out() -> Response:
        """Have the browser forget its token, which stays valid elsewhere."""
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE)
        return answer

    @router.get(SITE_PAGE)
    async def page(request: Request) -> Response:
        return answer(request, "index.html")

    @router.get(f"{SITE_PAGE}/{{name}}")
    async def file(request: Request, name: str) -> Response:
        if name not in files:
            raise NotAllowed(f"the page has no file of this name; it is at {SITE_PAGE}")
        return answer(request, name)

    def answer(request: Request, name: str) -> Response:
        headers = _PAGE_HEADERS | {"ETag": tags[name]}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(files[name], headers=headers, media_type=f"{kind}; charset=utf-8")

    return router
