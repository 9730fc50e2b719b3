"""Bringing a site that runs to the package that is installed, and back where that fails."""

import os
import signal
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import psutil

from headway.admin.database.backup import back_up, put_back
from headway.admin.database.own import start_database
from headway.admin.down import Say, stop_for_others
from headway.admin.environment import check_connections
from headway.admin.install import kept_by_systemd
from headway.admin.processes import only_one
from headway.admin.up import bring_up
from headway.errors import HeadwayError, LedgerMissing
from headway.ledger import Ledger
from headway.ledger.database import SCHEMA_VERSION
from headway.ledger.errors import LedgerNewer, LedgerOlder
from headway.node import daemon as daemons
from headway.project import PROJECT
from headway.settings import Settings
from headway.site import Site

_KEPT = 3
"""Backups of upgrades that stay in the home."""
_OLD_UP_S = 900.0


class NotUpgraded(HeadwayError):
    """The site was not brought to the package that is installed."""

    def __init__(self, cause: str, now: str) -> None:
        self.cause = cause
        self.now = now
        super().__init__(f"not upgraded: {cause}. {now}")


def upgrade(site: Site, say: Say) -> Path | None:
    """Bring the site of this machine to this package; what runs in containers goes on.

    What serves and starts runs is stopped, the databases are written to a file, the tables are
    changed, and all is started from this package. Where one of the last two fails the site of
    before is started again, as far as its package is still there.

    Where systemd or compose keeps the site only the tables are changed: they would start again
    what this stops.

    Returns:
        The file of the backup; None on a node that has joined a site elsewhere.

    Raises:
        NotUpgraded: It failed, and what the site is now.
        LedgerMissing: There is no ledger.
        LedgerNewer: The ledger is newer than this package.
        LedgerOlder: It is older, on a node that has joined.
    """
    settings, clock = site.settings, site.clock
    check_connections(settings)
    supervised = _is_supervised(settings)
    old = _environment_of_running(settings)
    if not supervised:
        start_database(settings, clock, say)
    found = Ledger.schema(settings.database_url)
    say(f"installed: headway {version('headway')}, schema {SCHEMA_VERSION}; the site: {found}")
    if found is None:
        raise LedgerMissing(str(settings.home))
    if found > SCHEMA_VERSION:
        raise LedgerNewer(found, SCHEMA_VERSION)
    if settings.is_guest and found < SCHEMA_VERSION:
        raise LedgerOlder(found, SCHEMA_VERSION)
    if supervised:
        file = None if settings.is_guest else _upgraded(site, found, say)
        say("now restart the services of this site with this headway (`headway install`)")
        return file
    _stop(site, say)
    file = None
    changed = False
    try:
        if not settings.is_guest:
            file = _upgraded(site, found, say)  # where it fails, no table is changed
        changed = not settings.is_guest  # from here on, Prefect's database may be, too
        bring_up(site, say)
    except Exception as error:  # whatever it is, the site of before is wanted back
        say(f"the upgrade failed ({error}); going back …")
        raise NotUpgraded(
            str(error), _go_back(site, old, file if changed else None, say)
        ) from error
    return file


def _is_supervised(settings: Settings) -> bool:
    """Whether systemd or compose would start again what this stops."""
    served = daemons.worker_daemon(settings), daemons.gateway_daemon(settings)
    runs = any(each.process() for each in served)
    by_services = settings.server_url is not None  # those of compose, which may be down
    unlike_up = runs and not daemons.supervisor_note(settings).exists()
    return kept_by_systemd(settings) or by_services or unlike_up


def _stop(site: Site, say: Say) -> None:
    """Stop all but guard and database; nothing writes then but the guard, which renews leases."""
    with only_one(site.settings):
        stopped = stop_for_others(site)
    say(f"stopped: {', '.join(stopped) or 'nothing'}; what runs goes on")


def _upgraded(site: Site, schema: str, say: Say) -> Path:
    """Change the tables, which had *schema*, behind a backup; its file."""
    folder = site.settings.home / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    at = site.clock.now().strftime("%Y%m%dT%H%M%S")
    file = folder / f"{at}-schema-{schema}.backup"
    back_up(site.settings, site.clock, file)
    for each in sorted(folder.glob("*-schema-*.backup"))[:-_KEPT]:
        each.unlink()
    say(f"backup: {file}")
    Ledger.upgrade(site.settings.database_url).close()
    return file


def _environment_of_running(settings: Settings) -> Mapping[str, str] | None:
    """The environment of a process of the site, by which its own package is started again.

    None where nothing runs, or where this package lies in the place of that one.
    """
    daemon = daemons.server_daemon, daemons.supervisor_daemon, daemons.guard_daemon
    for process in (each(settings).process() for each in daemon):
        if process is not None:
            try:
                found = process.environ()
            except psutil.Error:
                continue
            same = found.get("PYTHONPATH", "").split(os.pathsep)[0] == str(PROJECT)
            return None if same else found
    return None


def _go_back(site: Site, old: Mapping[str, str] | None, file: Path | None, say: Say) -> str:
    """Have the databases as in *file*, if one is given, and the site of before; what is now."""
    settings = site.settings
    with only_one(settings):
        stop_for_others(site)
        daemons.guard_daemon(settings).stop(signal.SIGTERM, 10.0)
    if vars(site).get("ledger"):
        site.ledger.close()  # its connections would keep the database from being exchanged
        del site.ledger
    if file is not None and not settings.owns_database:
        return (
            f"The site is down, and its databases may be changed. Make both databases empty; then, "
            f"with the package of before, `headway restore {file}` and `headway up`"
        )
    if file is not None:
        try:
            put_back(settings, site.clock, file, say)
        except (HeadwayError, OSError) as error:
            return (
                f"The site is down: {error}. With the package of before: `headway down --stop`, "
                f"`headway restore --replace {file}`, `headway up`"
            )
    data = "The databases are as before" + (f" (from {file})" if file is not None else "")
    if old is None:
        return f"{data}. The site is down: install the package of before, and run `headway up`"
    program = Path(old["PATH"].split(os.pathsep)[0]) / "headway"
    try:
        done = subprocess.run(
            [program, "up"], env=dict(old), cwd=old["PYTHONPATH"].split(os.pathsep)[0],
            capture_output=True, text=True, check=False, timeout=_OLD_UP_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{data}. The site is down: `{program} up` failed ({error})"
    if done.returncode != 0:
        return f"{data}. The site is down: `{program} up` failed ({done.stderr.strip()[-300:]})"
    return f"{data}, and the site of before is up again, by {program}"
