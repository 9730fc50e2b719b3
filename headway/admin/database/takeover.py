"""Bringing a site from SQLite into the PostgreSQL of its own, once its runs have ended."""

import signal
from collections.abc import Callable
from pathlib import Path

from headway.admin.database.own import (
    give_password,
    lost_address,
    make_database,
    note_database,
    start_database,
)
from headway.clock import Clock
from headway.errors import HeadwayError
from headway.ledger.copying import Copied, copy_ledger, not_ended, not_ended_in_prefect
from headway.node.daemon import Daemon, database_daemon
from headway.settings import Settings

Say = Callable[[str], None]
KEPT = "before-postgresql"
"""End of the names under which the files of SQLite stay."""


class NotTakenOver(HeadwayError):
    """A site on SQLite was not brought into PostgreSQL; nothing of it was changed."""

    def __init__(self, under_way: int) -> None:
        self.under_way = under_way
        super().__init__(
            f"this site is on SQLite, on which this version does not work, and {under_way} of its "
            "runs wait or are under way. Let them end with the version that made it, then "
            "`headway up` of this one brings the site into PostgreSQL"
        )


def take_over(settings: Settings, clock: Clock, say: Say) -> None:
    """Bring a site on SQLite into a PostgreSQL of its own, which stays started if this fails.

    It may be broken off at any point: the site is in PostgreSQL from the moment at which the
    address is noted, and until then on SQLite, of which only the names of files change.

    Raises:
        NotTakenOver: Runs of it wait or are under way.
        NoDatabase: No PostgreSQL can be started here.
        StartFailed: It did not come up.
        LedgerError: The old ledger cannot be read.
    """
    _check_ended(settings)
    url = make_database(settings, clock, say)
    _stop_who_writes(settings)
    _check_ended(settings)  # a run may have been submitted meanwhile
    copied = copy_ledger(old_ledger(settings), url)
    note_database(settings, url)
    put_aside(settings)
    _tell(settings, copied, say)


def old_ledger(settings: Settings) -> Path:
    """The ledger of a site on SQLite."""
    return settings.home / "ledger.db"


def put_aside(settings: Settings) -> None:
    """Give the files of SQLite other names; the server's registrations are made anew."""
    for file in (old_ledger(settings), _prefect_file(settings)):
        for end in ("", "-wal", "-shm"):
            if (part := file.with_name(file.name + end)).exists():
                part.rename(file.with_name(f"{file.stem}-{KEPT}{file.suffix}{end}"))
    (settings.state_dir / "registered").unlink(missing_ok=True)


def _check_ended(settings: Settings) -> None:
    waiting = not_ended(old_ledger(settings)), not_ended_in_prefect(_prefect_file(settings))
    if any(waiting):
        raise NotTakenOver(max(waiting))


def _prefect_file(settings: Settings) -> Path:
    return settings.home / "prefect/prefect.db"


def _stop_who_writes(settings: Settings) -> None:
    Daemon("supervisor", settings.state_dir).stop(signal.SIGTERM, 10.0)  # it brings others back
    for name in ("gateway", "scheduler", "worker", "guard", "server"):
        Daemon(name, settings.state_dir).stop(signal.SIGTERM, 20.0)


def _tell(settings: Settings, copied: Copied, say: Say) -> None:
    old = old_ledger(settings).with_name(f"ledger-{KEPT}.db")
    kinds = ("trace", "run", "attempt", "setting")
    came = ", ".join(f"{copied.rows[kind]} {kind}s" for kind in kinds)
    say(
        f"the ledger was copied from SQLite, with {came} and all else; the old one is kept as {old}"
    )
    for name, count in copied.left.items():
        say(f"{count} rows of {name} stayed there: PostgreSQL refuses what is in them")
    if (server := _prefect_file(settings).with_name(f"prefect-{KEPT}.db")).exists():
        say(
            "Prefect's own pages of earlier runs, Secret blocks and edited deployments stay in "
            f"{server}: make the Secret blocks again"
        )


def have_database(settings: Settings, clock: Clock, say: Callable[[str], None]) -> bool:
    """Have the site's database run: its own PostgreSQL, made with a new site.

    A site on SQLite is brought into one.

    Returns:
        Whether it was started.

    Raises:
        NoDatabase: Nothing here can start one.
        StartFailed: It did not come up.
        NotTakenOver: The site is on SQLite, and runs of it have not ended.
    """
    if settings.names_ledger:
        return False
    if lost_address(settings):
        give_password(settings, say)
    if settings.database_note.exists():
        if old_ledger(settings).exists():  # broken off before its last step
            put_aside(settings)
        return start_database(settings, clock, say)
    try:
        if old_ledger(settings).exists():
            take_over(settings, clock, say)
        else:
            note_database(settings, make_database(settings, clock, say))
    except HeadwayError:
        database_daemon(settings).stop(signal.SIGINT, 60.0)
        raise
    return True
