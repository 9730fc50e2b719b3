"""The gateway on a free port, served by the real server, and tokens for it."""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.gateway.app import create_app
from headway.gateway.certificate import Certificate
from headway.gateway.tokens import issue
from headway.ledger import Ledger
from headway.model.access import Scope
from headway.node.protocols import bounds
from headway.prefect.client import PrefectServer
from headway.settings import Settings
from headway.site import Site
from tests.support.postgresql import new_ledger
from tests.support.site import LiveSite, free_port

MEMBER = frozenset({Scope.WATCH, Scope.SUBMIT})


def bearer(
    site: Site,
    user: str = "root",
    team: str = "default",
    scopes: Iterable[Scope] = (Scope.OPERATE,),
) -> dict[str, str]:
    """Headers with a token that was made for them; an operator's unless said otherwise."""
    token, _ = issue(
        site.ledger, user=user, team=team, scopes=set(scopes), lifetime_s=3600.0, actor="tests"
    )
    return {"Authorization": f"Bearer {token}"}


def site_in(folder: Path) -> Site:
    """A site whose home and new ledger are in *folder*; nothing of it runs."""
    settings = Settings(home=folder, ledger_url=SecretStr(new_ledger()), runtime="process")
    return Site(settings, SystemClock(), Ledger.open)


@contextmanager
def gateway_of(live: LiveSite) -> Iterator[tuple[str, Site]]:
    """The gateway of a live site, in this process: its address, and the site."""
    site = Site(Settings(home=live.home, port=live.port), SystemClock(), Ledger.find)
    with live.server() as server, serving(site, server) as url:
        yield url, site
    site.ledger.close()


@contextmanager
def cut_off(site: Site) -> Iterator[dict[str, str]]:
    """A gateway of *site* at whose Prefect server nobody listens; how its operator reaches it."""
    with (
        PrefectServer(f"http://127.0.0.1:{free_port()}/api", auth=None) as nobody,
        serving(site, nobody) as url,
    ):
        token = bearer(site)["Authorization"].removeprefix("Bearer ")
        yield {"HEADWAY_URL": url, "HEADWAY_TOKEN": token}


@contextmanager
def own_gateway(site: Site, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within it, commands of this process come in at a gateway of *site*, as its operator."""
    with serving(site) as url:
        patch.setenv("HEADWAY_URL", url)
        patch.setenv("HEADWAY_TOKEN", bearer(site)["Authorization"].removeprefix("Bearer "))
        yield


@contextmanager
def serving(
    site: Site, server: PrefectServer | None = None, *, own: Certificate | None = None
) -> Iterator[str]:
    """Serve *site*, whose Prefect is *server*, by TLS if it has a certificate; its address."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        PrefectServer(site.settings.api_url, auth=None, timeout_s=1.0) as nobody,
    ):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as asyncio's own
        port = listening.getsockname()[1]
        app = create_app(site, server or nobody, allowed_hosts=["127.0.0.1"])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", **bounds(), **_tls(own)))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        deadline = time.monotonic() + 20
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            yield f"{'https' if own else 'http'}://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(timeout=20)


def _tls(own: Certificate | None) -> dict[str, Any]:
    return {"ssl_certfile": own.path, "ssl_keyfile": own.key} if own else {}
