"""The ways to a run's ports on the gateway's own origin: a link, and bytes for `forward`."""

from datetime import date

from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import RedirectResponse

from headway.errors import HeadwayError, InvalidInput, NotAllowed, PortClosed
from headway.gateway.actions import note_act
from headway.gateway.door import Submitter, shown_token
from headway.gateway.run_ports import OpenRun, RunPorts, open_run
from headway.model.access import Caller
from headway.model.session import session_path, session_port
from headway.node.relay import CLOSED, reason, relay
from headway.node.shares import in_thread
from headway.site import Site

_MOST_NOTED = 10_000


def ports_of(site: Site, sessions_port: int | None) -> APIRouter:
    """The routes to the ports of *site*'s runs; *sessions_port* has the pages of sessions."""
    router = APIRouter()
    ports = RunPorts(site)
    strangers = _Strangers(site)

    @router.get("/runs/{run}/session", response_class=RedirectResponse, status_code=303)
    def session(caller: Submitter, request: Request, run: str) -> RedirectResponse:
        """Lead a browser to the page of a session: it is at another port, so of another origin."""
        found = open_run(site, caller, run, alone=True)
        if session_port(found.record.job, found.lease.ports) is None:
            raise PortClosed(found.record.run_id, None, "the run is no session")
        if sessions_port is None:
            allowed = "its port is not served here: ask an operator, or use `headway forward`"
            raise InvalidInput("HEADWAY_SESSIONS_PORT", sessions_port, allowed)
        # Without a scheme: a proxy in front may speak TLS, of which nothing is known here.
        where = f"//{request.url.hostname}:{sessions_port}{session_path(found.record.run_id)}"
        return RedirectResponse(where, status_code=303)

    @router.websocket("/runs/{run}/ports/{port}")
    async def forward(client: WebSocket, run: str, port: int) -> None:
        """Carry the bytes of one connection to a port of a run, for `headway forward`."""
        headers = dict(client.headers.items())
        caller: Caller = client.state.caller

        def open_for_caller() -> OpenRun:
            if shown_token(headers)[1]:
                raise NotAllowed("a page may not ask this: send the token in Authorization")
            found = open_run(site, caller, run, alone=False)
            strangers.note(caller, found, port)
            return found

        try:
            program = await ports.connect(await in_thread(open_for_caller), port)
        except HeadwayError as error:
            await client.accept()
            await client.close(CLOSED, reason(error))
            return
        await relay(client, program)

    return router


class _Strangers:
    """Notes that an operator looks into another's run: once a day, a page is many connections."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._noted: set[tuple[str, str, int, date]] = set()

    def note(self, caller: Caller, found: OpenRun, port: int) -> None:
        """Before anything is seen, so that nothing is of which there is no word."""
        run_id = found.record.run_id
        of_today = caller.user, run_id, port, self._site.clock.now().date()
        if found.is_of(caller) or of_today in self._noted:
            return
        note_act(self._site, caller, "run.forward", run_id, {"port": str(port)})
        if len(self._noted) >= _MOST_NOTED:
            self._noted.clear()
        self._noted.add(of_today)
