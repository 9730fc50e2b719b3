"""Bringing a site up on one machine."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headway.admin import processes
from headway.admin.database.takeover import have_database
from headway.admin.environment import check_connections, prefect_command
from headway.admin.processes import StartFailed, only_one
from headway.admin.register import register, write_profile
from headway.admin.supervisor import start_supervisor
from headway.credentials import noted_gateway
from headway.gateway.tokens import have_local_token
from headway.home import ROOT_HOME, ballast_given_up, settle
from headway.node.daemon import guard_daemon, supervisor_note, worker_daemon
from headway.node.probing import probe_node
from headway.prefect.auth import have_auth, site_auth
from headway.prefect.client import PrefectServer
from headway.runtime.port import RuntimeKind
from headway.site import Site
from headway.this_node import check_name

Say = Callable[[str], None]


def bring_up(site: Site, say: Say) -> dict[str, Any]:
    """Start what does not run yet. What it reports is what `headway up --json` prints.

    On a node that has joined a site elsewhere that is guard and worker: server and gateway are
    the other machine's, and a second gateway would be announced in the place of that one.
    """
    check_connections(site.settings)
    with ballast_given_up(site.settings.home, say):
        return _bring_up(site, say)


def _bring_up(site: Site, say: Say) -> dict[str, Any]:
    settings = site.settings
    settle(settings.home)
    if os.geteuid() == 0 and settings.home == Path.home() / ".headway":
        say(f"going on with the site in {settings.home}; a new one of root's is in {ROOT_HOME}")
    with only_one(settings):
        if not supervisor_note(settings).exists():  # one that stayed may be of an earlier version
            guard_daemon(settings).stop(signal.SIGTERM, 10.0)
        processes.start_forks(settings)  # it imports while the database starts
        database = have_database(settings, site.clock, say)
        site.make_ledger()
        if worker_daemon(settings).process() is None:
            # Here, where somebody reads why it cannot be.
            check_name(site.ledger, settings)
            site.choose_runtime()
            if site.runtime.kind is RuntimeKind.PROCESS:
                say(f"programs run as plain processes: {site.why_no_engine()}")
        started, registered = (_node if settings.is_guest else _site)(site, say)
        start_supervisor(settings)
    gateway = noted_gateway(settings)
    return {
        "url": settings.api_url.removesuffix("/api"),
        "gateway": gateway.url if gateway is not None else None,
        "started": [name for name, new in (("database", database), *started) if new],
        "registered": registered,
        "node": settings.node,
        "auth_file": str(settings.auth_file),
        "prefect": prefect_command(settings),
        "runtime": site.runtime.kind.value,
        "weaknesses": list(site.runtime.weaknesses()),
    }


_Started = list[tuple[str, bool]]


def _site(site: Site, say: Say) -> tuple[_Started, bool]:
    """Start all processes of a site; which were new, and whether anything was registered."""
    settings = site.settings
    have_local_token(settings, site.ledger)
    have_auth(settings)  # the gateway tells it to the server
    with ThreadPoolExecutor() as beside:
        gateway = beside.submit(processes.start_gateway, settings, site.clock, say)
        server = processes.start_prefect(settings, site.clock, say)
        probe_node(site, say)
        watched = beside.submit(processes.start_guard, settings, site.clock, say)
        registered = register(settings, say)
        profile = beside.submit(write_profile, settings, say) if registered else None
        scheduler = processes.start_scheduler(settings, say)
        guard = watched.result()  # no worker without it: nobody would renew the leases
        worker = processes.start_worker(settings, site.clock, say)
        if profile is not None:
            profile.result()
        opened = gateway.result()
    return [
        ("server", server),
        ("guard", guard),
        ("scheduler", scheduler),
        ("worker", worker),
        ("gateway", opened),
    ], registered


def _node(site: Site, say: Say) -> tuple[_Started, bool]:
    """The same of a node of a site that is elsewhere."""
    settings = site.settings
    probe_node(site, say)
    # It renews what is alive, whoever is away.
    guard = processes.start_guard(settings, site.clock, say)
    with PrefectServer(settings.api_url, auth=site_auth(settings), timeout_s=5.0) as server:
        if not server.is_healthy():
            cause = f"no Prefect server answers at {settings.api_url}; bring its machine up first"
            raise StartFailed("the worker", worker_daemon(settings).log, cause)
    return [("guard", guard), ("worker", processes.start_worker(settings, site.clock, say))], False
