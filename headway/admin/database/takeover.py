"""Bringing a site from SQLite into the PostgreSQL of its own, once its runs have ended."""

import signal
from collections.abc import Callable
from pathlib import Path

from headway.admin.database.own import NoDatabase, make_database, note_database
from headway.admin.processes import StartFailed
from headway.clock import Clock
from headway.errors import LedgerError
from headway.ledger import Ledger
from headway.ledger.copying import Copied, copy_ledger, not_ended, not_ended_in_prefect
from headway.node.daemon import (
    database_daemon,
    gateway_daemon,
    guard_daemon,
    server_daemon,
    supervisor_daemon,
    worker_daemon,
)
from headway.settings import Settings

Say = Callable[[str], None]
KEPT = "before-postgresql"
"""End of the names under which the files of SQLite stay."""


def take_over(settings: Settings, clock: Clock, say: Say) -> bool:
    """Bring the site over, or say why it stays on SQLite; whether its PostgreSQL was started.

    It may be broken off at any point: the site is in PostgreSQL from the moment at which the
    address is noted, and until then on SQLite, of which only the names of files change.
    """
    if waiting := _under_way(settings):
        say(
            f"the site stays on SQLite for now: {waiting} runs wait or are under way. When they "
            "have ended, `headway up` brings it into PostgreSQL"
        )
        return False
    try:
        url = make_database(settings, clock, say)
        _stop_who_writes(settings)
        if _under_way(settings):  # handed in meanwhile
            raise NoDatabase("a run was handed in meanwhile")
        Ledger.open(url).close()
        copied = copy_ledger(f"sqlite:///{settings.ledger_file}", url)
    except (NoDatabase, StartFailed, LedgerError) as error:
        database_daemon(settings).stop(signal.SIGINT, 60.0)
        say(f"the site stays on SQLite: {error}")
        return False
    note_database(settings, url)
    put_aside(settings)
    _tell(settings, copied, say)
    return True


def put_aside(settings: Settings) -> None:
    """Give the files of SQLite other names; the server's registrations are made anew."""
    for file in (settings.ledger_file, _prefect_file(settings)):
        for end in ("", "-wal", "-shm"):
            if (part := file.with_name(file.name + end)).exists():
                part.rename(file.with_name(f"{file.stem}-{KEPT}{file.suffix}{end}"))
    (settings.state_dir / "registered").unlink(missing_ok=True)


def _under_way(settings: Settings) -> int:
    url = f"sqlite:///{settings.ledger_file}"
    Ledger.open(url).close()  # one of version 0.1 gets this code's tables
    return max(not_ended(url), not_ended_in_prefect(_prefect_file(settings)))


def _prefect_file(settings: Settings) -> Path:
    return settings.home / "prefect/prefect.db"


def _stop_who_writes(settings: Settings) -> None:
    supervisor_daemon(settings).stop(signal.SIGTERM, 10.0)  # it would bring back what stops
    for daemon in (gateway_daemon, worker_daemon, guard_daemon, server_daemon):
        daemon(settings).stop(signal.SIGTERM, 20.0)


def _tell(settings: Settings, copied: Copied, say: Say) -> None:
    old = settings.ledger_file.with_name(f"ledger-{KEPT}.db")
    kinds = ("trace", "run", "attempt", "setting")
    came = ", ".join(f"{copied.rows[kind]} {kind}s" for kind in kinds)
    say(f"the ledger came along from SQLite: {came}, and all else; the old one is kept as {old}")
    for name, count in copied.left.items():
        say(f"{count} rows of {name} stayed there: PostgreSQL refuses what is in them")
    if (server := _prefect_file(settings).with_name(f"prefect-{KEPT}.db")).exists():
        say(
            "Prefect's own pages of earlier runs, Secret blocks and edited deployments stay in "
            f"{server}: make the Secret blocks again"
        )
