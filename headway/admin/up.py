"""Bringing a site up on one machine."""

import fcntl
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from headway.admin import processes
from headway.admin.config_file import apply_config, checked_config
from headway.admin.database.takeover import have_database
from headway.admin.down import stop_for_others
from headway.admin.environment import check_connections, prefect_command, site_environment
from headway.admin.install import leave_to_systemd
from headway.admin.processes import SCHEDULER, StartFailed, only_one, server_command
from headway.admin.register import register, write_profile
from headway.admin.supervisor import LOOK_AGAIN_S, Standby, start_supervisor
from headway.admin.told import note_told, told_otherwise
from headway.clock import Clock
from headway.credentials import noted_gateway
from headway.errors import InvalidInput, LedgerError
from headway.gateway.certificate import addresses_not_named, fitting
from headway.gateway.tokens import have_local_token
from headway.home import ROOT_HOME, ballast_given_up, settle
from headway.node.daemon import fork_daemon, guard_daemon, supervisor_note, worker_daemon
from headway.prefect.auth import have_auth, site_auth
from headway.prefect.client import PrefectServer
from headway.project import PROJECT
from headway.runtime.port import RuntimeKind
from headway.settings import Settings
from headway.site import Site
from headway.this_node import check_name

Say = Callable[[str], None]


def bring_up(site: Site, say: Say) -> dict[str, Any]:
    """Start what does not run yet. What it reports is what `headway up --json` prints.

    On a node that has joined a site elsewhere that is guard and worker: server and gateway are
    the other machine's, and a second gateway would be announced in the place of that one.
    """
    leave_to_systemd(site.settings, "`headway install` writes its units anew and starts them")
    checked_config(site.settings)  # before anything starts
    check_connections(site.settings)
    with ballast_given_up(site.settings.home, say):
        return _bring_up(site, say)


def _bring_up(site: Site, say: Say) -> dict[str, Any]:
    settings = site.settings
    settle(settings.home)
    if os.geteuid() == 0 and settings.home == Path.home() / ".headway":
        say(f"going on with the site in {settings.home}; a new one of root's is in {ROOT_HOME}")
    with only_one(settings):
        if not settings.is_guest:
            have_auth(settings)
            fitting(settings, site.clock.now())
        forks = processes.start_forks(settings)  # it imports while the database starts
        database = have_database(settings, site.clock, say)
        try:
            site.make_ledger()
        except LedgerError:
            if forks:  # it is of this headway, and the site may be of another
                fork_daemon(settings).stop(signal.SIGTERM, 10.0)
            raise
        stop_told_otherwise(site, say)  # behind all that may be refused
        processes.start_forks(settings)
        if worker_daemon(settings).process() is None:
            # Here, where somebody reads why it cannot be.
            check_name(site.ledger, settings)
            site.choose_runtime()
            if site.runtime.kind is RuntimeKind.PROCESS:
                say(f"programs run as plain processes: {site.chosen.why_no_engine}")
        started, registered = (_node if settings.is_guest else _site)(site, say)
        start_supervisor(settings)
        note_told(settings)
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


def stop_told_otherwise(site: Site, say: Say) -> None:
    """Stop what runs with other settings than these, but the database."""
    if other := told_otherwise(site.settings):
        say(f"what runs has other settings ({', '.join(other)}): restarting it …")
        stop_for_others(site)
    if not supervisor_note(site.settings).exists():  # one that stayed may be of an earlier version
        guard_daemon(site.settings).stop(signal.SIGTERM, 10.0)


_Started = list[tuple[str, bool]]


def _site(site: Site, say: Say) -> tuple[_Started, bool]:
    """Start all processes of a site; which were new, and whether anything was registered."""
    settings = site.settings
    have_local_token(settings, site.ledger)
    with ThreadPoolExecutor() as beside:
        gateway = beside.submit(processes.start_gateway, settings, site.clock, say)
        server = processes.start_prefect(settings, site.clock, say)
        watched = beside.submit(processes.start_guard, settings, site.clock, say)
        registered = register(settings, say)
        apply_config(site, say)  # nothing starts by rules that the file does not say
        profile = beside.submit(write_profile, settings, say) if registered else None
        scheduler = processes.start_scheduler(settings, say)
        guard = watched.result()  # no worker without it: nobody would renew the leases
        worker = processes.start_worker(settings, site.clock, say)
        if profile is not None:
            profile.result()
        opened = gateway.result()
    if told := addresses_not_named(settings):
        say(told)
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
    apply_config(site, say)
    # It renews what is alive, whoever is away.
    guard = processes.start_guard(settings, site.clock, say)
    with PrefectServer(settings.api_url, auth=site_auth(settings), timeout_s=5.0) as server:
        if not server.is_healthy():
            cause = f"no Prefect server answers at {settings.api_url}; bring its machine up first"
            raise StartFailed("the worker", worker_daemon(settings).log, cause)
    return [("guard", guard), ("worker", processes.start_worker(settings, site.clock, say))], False


_MIGRATE = "PREFECT_SERVER_DATABASE_MIGRATE_ON_START"
_NO_DATABASE = "name a PostgreSQL, postgresql://…, that all processes of the server share"
_NO_REDIS = (
    "name the Redis that all processes of the server share, such as redis://127.0.0.1:6379/0"
)
_NOT_INSTALLED = "install what speaks to it: pip install 'headway[redis]'"


def serve_site(settings: Settings) -> NoReturn:
    """Become this site's Prefect server: for systemd and containers.

    Raises:
        InvalidInput: Others could read what goes to it or to its database.
        LedgerMissing: The site's own PostgreSQL was not made yet.
    """
    if settings.server_database is None:
        settings.database_url  # noqa: B018 - raises where none is named: Prefect would make its own
    check_connections(settings)
    _check_package(settings)
    have_auth(settings)
    become(server_command(settings), settings)


def serve_part(settings: Settings, *, services: bool) -> NoReturn:
    """Become the *services* of the site's server, or one of the processes that answer for it.

    Raises:
        InvalidInput: There is nothing by which they could share, or others could read it.
    """
    if not (settings.server_database or "").startswith("postgresql"):
        raise InvalidInput("HEADWAY_SERVER_DATABASE_URL", "no PostgreSQL", _NO_DATABASE)
    if settings.redis is None:
        raise InvalidInput("HEADWAY_REDIS_URL", "nothing", _NO_REDIS)
    check_connections(settings)
    _check_package(settings)
    _prepare(settings)
    command = ["prefect", "server", "services", "start"]
    become(
        command if services else [*server_command(settings), "--no-services"],
        settings,
        {_MIGRATE: "false"},
    )


def serve_scheduler(settings: Settings, clock: Clock) -> NoReturn:
    """Become the scheduler of this node's pool once nobody leads it."""
    standby = Standby(settings, clock)
    while not standby.is_due():
        clock.sleep(LOOK_AGAIN_S)
    become(SCHEDULER, settings)


def become(
    command: Sequence[str], settings: Settings, more: dict[str, str] | None = None
) -> NoReturn:
    """Let a Python module take the place of this process: *command* is its name and arguments.

    Its environment is the site's, and *more*.
    """
    os.chdir(PROJECT)
    command = [sys.executable, "-m", *command]
    env = site_environment(settings) | (more or {})
    os.execve(command[0], command, env)  # noqa: S606 - no shell, our own path


def _check_package(settings: Settings) -> None:
    if settings.redis is not None and importlib.util.find_spec("prefect_redis") is None:
        raise InvalidInput("HEADWAY_REDIS_URL", "no package prefect-redis", _NOT_INSTALLED)


def _prepare(settings: Settings) -> None:
    """Have an auth string and the database's tables: one process of this machine at a time.

    Two that begin together would each make a string, and stumble over each other's tables.
    """
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (settings.state_dir / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        have_auth(settings)
        upgrade = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
        subprocess.run(upgrade, env=site_environment(settings), check=True)
