"""Which database a site has, settled at `headway up`."""

import signal
from collections.abc import Callable

from headway.admin.database.own import make_database, note_database, start_database
from headway.admin.database.takeover import old_ledger, put_aside, take_over
from headway.clock import Clock
from headway.errors import HeadwayError
from headway.node.daemon import database_daemon
from headway.settings import Settings


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
