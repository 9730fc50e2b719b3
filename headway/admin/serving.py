"""Being the site's Prefect server, whole or one of several processes of it, or its scheduler.

Several share their database, and by Redis what one process would keep in its memory: events
and their order, leases of Prefect's concurrency limits, and the work that is done beside the API.
"""

import fcntl
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from headway.admin.environment import check_connections, site_environment
from headway.admin.processes import SCHEDULER, server_command
from headway.admin.supervisor import LOOK_AGAIN_S, Standby
from headway.clock import Clock
from headway.errors import InvalidInput
from headway.prefect.auth import have_auth
from headway.project import PROJECT
from headway.settings import Settings

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
    """
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
