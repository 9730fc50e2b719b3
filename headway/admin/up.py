"""Bringing a site up and down on one machine."""

import contextlib
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headway.admin.connections import check_connections
from headway.admin.database.choice import have_database
from headway.admin.environment import prefect_command
from headway.admin.processes import (
    only_one,
    start_gateway,
    start_guard,
    start_prefect,
    start_worker,
)
from headway.admin.register import register, write_profile
from headway.admin.supervisor import start_supervisor, stop_supervisor
from headway.credentials import local_address
from headway.errors import (
    LedgerUnreachable,
    RuntimeFailure,
    RunUnknown,
    SiteUnreachable,
)
from headway.gateway.local_token import have_local_token
from headway.home import ROOT_HOME, settle
from headway.model.job_text import stop_grace_s
from headway.model.run import CANCELLED_BY
from headway.node.daemon import (
    database_daemon,
    gateway_daemon,
    guard_daemon,
    server_daemon,
    worker_daemon,
)
from headway.node.forkstart import running_server
from headway.node.probing import probe_node
from headway.prefect.auth import have_auth, site_auth
from headway.prefect.client import PrefectServer
from headway.runtime.port import ContainerState
from headway.site import Site
from headway.this_node import check_name, os_user

Say = Callable[[str], None]
_END_S = 60.0
"""For cancelled runs to be gone, beyond their grace time."""


def bring_up(site: Site, say: Say) -> dict[str, Any]:
    """Start what does not run yet. What it reports is what `headway up --json` prints."""
    settings = site.settings
    check_connections(settings)
    settle(settings.home)
    if os.geteuid() == 0 and settings.home == Path.home() / ".headway":
        say(f"going on with the site in {settings.home}; a new one of root's is in {ROOT_HOME}")
    with only_one(settings), ThreadPoolExecutor() as beside:
        database = have_database(settings, site.clock, say)
        site.make_ledger()
        if worker_daemon(settings).process() is None:
            # Here, where somebody reads why it cannot be.
            check_name(site.ledger, settings)
            site.choose_runtime()
        have_local_token(settings, site.ledger)
        have_auth(settings)  # the gateway tells it to the server
        gateway = beside.submit(start_gateway, settings, site.clock, say)
        server = start_prefect(settings, site.clock, say)
        probe_node(site, say)
        watched = beside.submit(start_guard, settings, site.clock, say)
        registered = register(settings, say)
        profile = beside.submit(write_profile, settings, say) if registered else None
        guard = watched.result()  # no worker without it: nobody would renew the leases
        worker = start_worker(settings, site.clock, say)
        if profile is not None:
            profile.result()
        opened = gateway.result()
        start_supervisor(settings)
    started = (
        ("database", database),
        ("server", server),
        ("guard", guard),
        ("worker", worker),
        ("gateway", opened),
    )
    return {
        "url": settings.api_url.removesuffix("/api"),
        "gateway": local_address(settings).url,
        "started": [name for name, new in started if new],
        "registered": registered,
        "node": settings.node,
        "auth_file": str(settings.auth_file),
        "prefect": prefect_command(settings),
        "runtime": site.runtime.kind.value,
        "weaknesses": list(site.runtime.weaknesses()),
    }


def take_down(site: Site, say: Say) -> dict[str, Any]:
    """Stop all of it: runs first, each with its grace time, then gateway, worker and server.

    The guard goes last, and stays where a container goes on: else nobody would stop that one
    before its place is given to another node.
    """
    settings = site.settings
    cancelled = _end_runs(site, say)
    stop_supervisor(settings)  # it would bring back what stops
    stopped = []
    with only_one(settings):
        if gateway_daemon(settings).stop(signal.SIGTERM, 10.0):
            stopped.append("gateway")
        if worker_daemon(settings).stop(signal.SIGTERM, 10.0):
            stopped.append("worker")
        fork_server = running_server(settings.state_dir)
        if fork_server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(fork_server, signal.SIGTERM)
            stopped.append("fork server")
        if server_daemon(settings).stop(signal.SIGTERM, 20.0):
            stopped.append("server")
        if alive := _alive_here(site):
            say(f"the guard stays, since {', '.join(alive)} goes on; `headway up` finds it again")
        elif guard_daemon(settings).stop(signal.SIGTERM, 10.0):
            stopped.append("guard")
        if database_daemon(settings).stop(signal.SIGINT, 60.0):  # last: the others write to it
            stopped.append("database")
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    return {"stopped": stopped, "cancelled": cancelled}


def _end_runs(site: Site, say: Say) -> list[str]:
    """Cancel what is under way on this node and wait until it is gone."""
    if worker_daemon(site.settings).process() is None:
        return []
    try:
        under_way = site.ledger.runs.on_node(site.settings.node)
        with PrefectServer(site.settings.api_url, auth=site_auth(site.settings)) as server:
            for run in under_way:
                say(f"cancelling {run.name} ({run.run_id[:8]}) …")
                with contextlib.suppress(RunUnknown):  # deleted: the janitor ends it
                    server.cancel(run.run_id, f"{CANCELLED_BY}{os_user()} (headway down)")
        grace_s = max((stop_grace_s(run.job) for run in under_way), default=0.0)
        end = site.clock.monotonic_s() + grace_s + _END_S
        while (left := _still_here(site)) and site.clock.monotonic_s() < end:
            site.clock.sleep(0.5)
    except (LedgerUnreachable, SiteUnreachable) as error:
        say(f"runs were not cancelled: {error}")
        return []
    for run_id in sorted(left):
        say(f"run {run_id} has not ended; its container goes on until a worker is here again")
    return [run.run_id for run in under_way if run.run_id not in left]


def _alive_here(site: Site) -> list[str]:
    """Containers that run on this node, as far as its runtime tells."""
    runtime = site.runtime_for_stopping()
    try:
        listed = runtime.containers() if runtime is not None else []
    except RuntimeFailure as error:
        return [f"what runs in the engine ({error})"]
    return [each.name for each in listed if each.state is ContainerState.RUNNING]


def _still_here(site: Site) -> set[str]:
    return {lease.run_id for lease in site.ledger.leases.live(site.settings.node)}
