"""Taking a site down on one machine, or a node out of its site."""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headway.admin.processes import only_one
from headway.admin.round_here import round_here
from headway.admin.supervisor import stop_supervisor
from headway.clock import Clock
from headway.errors import LedgerError, RuntimeFailure, RunUnknown, SiteUnreachable
from headway.gateway.cancel import cancel_in_ledger
from headway.ledger.records import RunRecord
from headway.model.job_text import stop_grace_s
from headway.model.run import CANCELLED_BY
from headway.node.daemon import (
    database_daemon,
    gateway_daemon,
    guard_daemon,
    server_daemon,
    worker_daemon,
)
from headway.node.flowlock import LiveFlows
from headway.node.forkstart import running_server
from headway.node.janitor import Janitor
from headway.node.mending import end_flow
from headway.prefect.auth import site_auth
from headway.prefect.client import PrefectServer
from headway.runtime.port import ContainerState
from headway.site import Site
from headway.this_node import os_user
from headway.units import format_duration
from headway.waits import waiting_for

Say = Callable[[str], None]
_END_S = 60.0
"""For cancelled runs to be gone, beyond their grace time."""
_LOOK_EVERY_S = 0.5
_LEAVE_S = 10.0
"""For a process that was told to leave; then it is killed."""


def take_down(site: Site, say: Say) -> dict[str, Any]:
    """Stop all of it: runs first, each with its grace time, then gateway, server and database.

    The worker goes before them: it would start the next run in the place of each that ends. What
    waits stays in the queue. The guard goes last, and stays where a container goes on: else
    nobody would stop that one before its place is given to another node.
    """
    settings = site.settings
    if not settings.state_dir.is_dir():  # no home of a site, and none is made of it
        say(f"nothing was running: there is no site in {settings.home}")
        return {"stopped": [], "cancelled": []}
    with only_one(settings):
        stop_supervisor(settings)  # it would bring back what stops
        stopped = []
        if worker_daemon(settings).stop(signal.SIGTERM, _LEAVE_S):
            stopped.append("worker")
        cancelled = _end_runs(site, say, worked=bool(stopped))
        if _stop_fork_server(site):
            stopped.append("fork server")
        _end_flows(site, LiveFlows(settings.state_dir, site.clock))
        if gateway_daemon(settings).stop(signal.SIGTERM, _LEAVE_S):
            stopped.append("gateway")
        if server_daemon(settings).stop(signal.SIGTERM, 20.0):
            stopped.append("server")
        if alive := _alive_here(site):
            say(f"the guard stays, since {', '.join(alive)} goes on; `headway up` finds it again")
        elif guard_daemon(settings).stop(signal.SIGTERM, _LEAVE_S):
            stopped.append("guard")
        if database_daemon(settings).stop(signal.SIGINT, 60.0):  # last: the others write to it
            stopped.append("database")
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    return {"stopped": stopped, "cancelled": cancelled}


def _end_runs(site: Site, say: Say, *, worked: bool) -> list[str]:
    """Cancel what is under way on this node and see it end; the runs that were.

    *worked* says that a worker was here until now. Without it a node at which nothing is alive
    has nothing to end, and its ledger need not be there to be asked.
    """
    settings, flows = site.settings, LiveFlows(site.settings.state_dir, site.clock)
    if not (worked or flows.now() or _alive_here(site)):
        return []
    try:
        under_way = site.ledger.runs.on_node(settings.node)
        with PrefectServer(settings.api_url, auth=site_auth(settings), timeout_s=5.0) as server:
            _end_beside(site, server, flows)
            for run in under_way:
                say(f"cancelling {run.name} ({run.run_id[:8]}) …")
                _cancel(site, server, run)
            grace_s = max((stop_grace_s(run.job) for run in under_way), default=0.0)
            left = _see_them_end(site, server, flows, grace_s + _END_S)
    except LedgerError as error:
        say(f"runs were not cancelled: {error}")
        return []
    for run_id in sorted(left):
        say(f"run {run_id} has not ended; its container goes on until a worker is here again")
    return [run.run_id for run in under_way if run.run_id not in left]


def _cancel(site: Site, server: PrefectServer, run: RunRecord) -> None:
    """Ask Prefect for its end; where that is away, the ledger."""
    message = _by("headway down")
    try:
        server.cancel(run.run_id, message)
    except RunUnknown:
        pass  # deleted: the janitor ends it
    except SiteUnreachable:
        cancel_in_ledger(site.ledger, run.run_id, message)


def _end_beside(site: Site, server: PrefectServer, flows: LiveFlows) -> None:
    """End flows that are no runs, estimates and refits: they hold nothing, and begin anew."""
    alive = flows.now()
    for run_id in sorted(alive - site.ledger.runs.of(list(alive)).keys()):
        end_flow(site, run_id, signal.SIGKILL)
        with suppress(SiteUnreachable):
            server.end(run_id, "CANCELLED", _by("headway down"))


def _see_them_end(site: Site, server: PrefectServer, flows: LiveFlows, limit_s: float) -> set[str]:
    """Make rounds of the janitor, which has no worker, until nothing is left; what is, in the end.

    A flow process cleans up and tells Prefect after its lease is gone: it is waited for, too.
    """
    janitor, end_s = Janitor(site), site.clock.monotonic_s() + limit_s
    what = f"what runs here to stop, at most {format_duration(limit_s)},"
    with waiting_for(what), _logged_to(worker_daemon(site.settings).log):
        while True:
            with suppress(RuntimeFailure):
                runs = janitor.unsettled(whole=False, line=False)
                round_here(site, server, janitor, runs, starting=())
            held = {lease.run_id for lease in site.ledger.leases.live(site.settings.node)}
            if not (held or flows.now()) or site.clock.monotonic_s() > end_s:
                return held
            site.clock.sleep(_LOOK_EVERY_S)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """What the janitor logs goes where its worker's words are, not to whoever types `down`."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("headway")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _stop_fork_server(site: Site) -> bool:
    """Stop what starts flow processes; whether it ran."""
    pid = running_server(site.settings.state_dir)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    return True


def _end_flows(site: Site, flows: LiveFlows) -> None:
    """End the flow processes that are left: without server and ledger they would wait for them.

    What their runs are, ledger and containers say; the next worker goes on from there.
    """
    for how in (signal.SIGTERM, signal.SIGKILL):
        for run_id in flows.now():
            end_flow(site, run_id, how)
        _wait_until(site.clock, lambda: not flows.now())


def _wait_until(clock: Clock, done: Callable[[], bool]) -> None:
    end_s = clock.monotonic_s() + _LEAVE_S
    while not done() and clock.monotonic_s() < end_s:
        clock.sleep(0.1)


def _by(command: str) -> str:
    return f"{CANCELLED_BY}{os_user()} ({command})"


def _alive_here(site: Site) -> list[str]:
    """Containers that run on this node, as far as its runtime tells."""
    runtime = site.runtime_for_stopping()
    try:
        listed = runtime.containers() if runtime is not None else []
    except RuntimeFailure as error:
        return [f"what runs in the engine ({error})"]
    return [each.name for each in listed if each.state is ContainerState.RUNNING]
