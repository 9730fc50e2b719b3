"""The page of the site: files that a browser loads, and that then ask the API as anybody does."""

import hashlib
from importlib import resources

from fastapi import APIRouter, Request, Response

from headway.errors import NotAllowed

SITE_PAGE = "/headway"
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_HEADERS = {
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

    @router.get(SITE_PAGE)
    async def page(request: Request) -> Response:
        return answer(request, "index.html")

    @router.get(f"{SITE_PAGE}/{{name}}")
    async def file(request: Request, name: str) -> Response:
        if name not in files:
            raise NotAllowed(f"the page has no file of this name; it is at {SITE_PAGE}")
        return answer(request, name)

    def answer(request: Request, name: str) -> Response:
        headers = _HEADERS | {"ETag": tags[name]}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(files[name], headers=headers, media_type=f"{kind}; charset=utf-8")

    return router
