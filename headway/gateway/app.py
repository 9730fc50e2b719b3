"""The one door: the application through which everybody but the operators reaches the site."""

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse

from headway.errors import HeadwayError
from headway.gateway.actions import actions
from headway.gateway.api import choices, reads, usages
from headway.gateway.arrays import arrays_of
from headway.gateway.bodies import StrictBodies
from headway.gateway.door import Door
from headway.gateway.pages import LOGIN, login_for, pages, site_page
from headway.gateway.ports import exec_in, ports_of
from headway.gateway.proxy import prefects_api
from headway.gateway.refusals import invalid, refused
from headway.gateway.run_files import run_files
from headway.gateway.runs import runs_of
from headway.gateway.uploads import CODE_PATHS, UPLOAD_PATHS, code_of, uploads_of
from headway.prefect.client import PrefectServer
from headway.site import Site

PREFIX = "/v1"
HEALTH = f"{PREFIX}/health"


def create_app(
    site: Site,
    server: PrefectServer,
    *,
    allowed_hosts: Sequence[str] = ("*",),
    sessions_port: int | None = None,
) -> FastAPI:
    """The application for *site*.

    Args:
        site: Whose ledger is read.
        server: Its Prefect.
        allowed_hosts: Host headers that are answered: a web page that rebinds its
            name to loopback must not read the site through a user's browser.
        sessions_port: Where `sessions_app` is served; None for nowhere.
    """
    app = FastAPI(
        title="headway",
        description="Runs, nodes, the queue and estimates of a site.",
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
    )
    # What is added last is asked first.
    opened = frozenset({HEALTH, LOGIN})
    app.add_middleware(
        StrictBodies, forms=frozenset({LOGIN}), raw=CODE_PATHS | UPLOAD_PATHS, opened=opened
    )
    app.add_middleware(
        Door,
        ledger=lambda: site.ledger,
        clock=site.clock,
        open_paths=opened,
        login=login_for,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(allowed_hosts))
    app.add_exception_handler(HeadwayError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.include_router(reads(site), prefix=PREFIX)
    app.include_router(choices(site), prefix=PREFIX)
    app.include_router(runs_of(site, server), prefix=PREFIX)
    app.include_router(run_files(site), prefix=PREFIX)
    app.include_router(ports_of(site, sessions_port), prefix=PREFIX)
    app.include_router(exec_in(site), prefix=PREFIX)
    app.include_router(usages(site), prefix=PREFIX)
    app.include_router(actions(site, server), prefix=PREFIX)
    app.include_router(code_of(site), prefix=PREFIX)
    app.include_router(uploads_of(site), prefix=PREFIX)
    app.include_router(arrays_of(site, server), prefix=PREFIX)
    app.include_router(prefects_api(site, server))

    @app.get(HEALTH)
    async def health() -> dict[str, str]:
        """That the gateway answers; open to everybody, and says nothing of the site."""
        return {"status": "ok"}

    @app.get(f"{PREFIX}/docs", include_in_schema=False)
    async def described() -> HTMLResponse:
        """The routes on a page; its script comes from elsewhere, so it is nobody's here."""
        shown = {"spec": app.openapi(), "supportedSubmitMethods": []}
        page = get_swagger_ui_html(openapi_url="", title="headway", swagger_ui_parameters=shown)
        page.headers["Content-Security-Policy"] = "sandbox allow-scripts; frame-ancestors 'none'"
        return page

    app.include_router(site_page())
    app.include_router(
        pages(site, site.settings.api_url.removesuffix("/api"))
    )  # takes what is left
    return app
