"""Which database a site has, settled at `headway up`."""

import signal
from collections.abc import Callable

from headway.admin.database.own import (
    WEAKNESS,
    NoDatabase,
    make_database,
    note_database,
    start_database,
)
from headway.admin.database.takeover import put_aside, take_over
from headway.admin.processes import StartFailed
from headway.clock import Clock
from headway.node.daemon import database_daemon
from headway.settings import Settings


def have_database(settings: Settings, clock: Clock, say: Callable[[str], None]) -> bool:
    """Have the site's database run: its own PostgreSQL, made with a new site.

    A site on SQLite is brought into one. Where none can be had, the site is on SQLite, and *say*
    is told what that means.

    Returns:
        Whether it was started.

    Raises:
        NoDatabase: The site has one, and nothing here can start it.
        StartFailed: The site has one, and it did not come up.
    """
    if settings.names_ledger:
        return False
    if settings.database_note.exists():
        if settings.ledger_file.exists():  # broken off before its last step
            put_aside(settings)
        return start_database(settings, clock, say)
    if settings.ledger_file.exists():
        return take_over(settings, clock, say)
    try:
        note_database(settings, make_database(settings, clock, say))
    except (NoDatabase, StartFailed) as error:
        database_daemon(settings).stop(signal.SIGINT, 60.0)
        say(f"{error}. Until then the site is on SQLite, which bears {WEAKNESS}")
        return False
    return True
