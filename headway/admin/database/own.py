"""Having a PostgreSQL of the site's own: found, made, started with it, stopped last."""

import hashlib
import os
import secrets
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from headway.admin.database.binaries import Account, Binaries, NoAccount, account_for, found
from headway.admin.database.cluster import LONGEST_FOLDER, UNFINISHED, Cluster
from headway.admin.database.dump import finish_upgrade, upgrade
from headway.clock import Clock
from headway.errors import HeadwayError, InvalidInput
from headway.home import CLOSED_HOMES_DATABASE, PROGRAMS, ROOT_HOME
from headway.ledger import hosting
from headway.model.document import HIDDEN
from headway.node.daemon import database_daemon
from headway.prefect.auth import keep_secret
from headway.settings import Settings
from headway.units import format_size

Say = Callable[[str], None]
_INSTALL = "Install one (on Debian: apt install postgresql) and run `headway up` again"


class NoDatabase(HeadwayError):
    """No PostgreSQL can be started for this site, and why."""

    def __init__(self, cause: str, remedy: str = _INSTALL) -> None:
        self.cause = cause
        self.remedy = remedy
        super().__init__(f"no PostgreSQL can be started here: {cause}. {remedy}")


def start_database(settings: Settings, clock: Clock, say: Say) -> bool:
    """Start the site's own PostgreSQL unless it runs; whether it was started.

    Raises:
        NoDatabase: The site has one, and nothing here can start it.
        StartFailed: It did not come up.
    """
    if not settings.owns_database:
        return False
    url, daemon = settings.database_url, database_daemon(settings)
    with daemon.starting():
        if daemon.runs(say, hangs=hosting.hangs(url)) and hosting.answers(url):
            return False
        cluster, newer = own_cluster(settings, say)
        if newer is not None:
            cluster = upgrade(cluster, newer, url, clock, say)
        say(f"starting PostgreSQL {cluster.binaries.version} in {cluster.folder} …")
        cluster.start(url, clock)
        if hosting.refuses(url):
            url = give_password(settings, say)
            cluster.start(url, clock)
    return True


def give_password(settings: Settings, say: Say) -> str:
    """Give the site's own PostgreSQL, which is stopped, another password; its noted address.

    Raises:
        NoDatabase: Nothing here can start it.
        StartFailed: It could not be opened.
    """
    cluster, _ = own_cluster(settings, say)
    cluster.stop()
    say("the database's password is lost: giving it another one …")
    password = secrets.token_urlsafe(24)
    cluster.change_password(password)
    url = hosting.socket_url(str(cluster.folder), password)
    note_database(settings, url)
    return url


def lost_address(settings: Settings) -> bool:
    """Whether the site has a PostgreSQL, and the file with its address and password is gone."""
    if settings.names_ledger or settings.database_note.exists():
        return False
    folder = _folder(settings)
    return (folder / "data/PG_VERSION").exists() and not (folder / UNFINISHED).exists()


def make_database(settings: Settings, clock: Clock, say: Say) -> str:
    """Make the site's own PostgreSQL, start it, and have its databases; the ledger's address.

    Nothing points to it before the caller notes the address.

    Raises:
        NoDatabase: There is no PostgreSQL here that could be started.
        StartFailed: It did not come up.
    """
    folder = _folder(settings)
    _check_new(folder)
    account = _account(folder, say)
    usable = _usable(folder, account)
    if not usable:
        raise NoDatabase("there is none with the extension pg_trgm")
    cluster = Cluster(folder, usable[0], account, database_daemon(settings))
    password = secrets.token_urlsafe(24)
    owner = f", as the account {account.name}" if account is not None else ""
    say(f"making the site's database: PostgreSQL {cluster.binaries.version} in {folder}{owner} …")
    cluster.stop()  # of an earlier try that went no further
    cluster.have_folder()
    cluster.make(password)
    url = hosting.socket_url(str(folder), password)
    cluster.start(url, clock)
    hosting.have_databases(url)
    return url


def become_database(settings: Settings, clock: Clock, say: Say) -> NoReturn:
    """Become the site's own PostgreSQL, which is made where there is none: for systemd.

    Raises:
        AlreadyRuns: It runs already.
        InvalidInput: The site's ledger is elsewhere.
        NoDatabase: There is no PostgreSQL here that could be started.
    """
    if settings.names_ledger:
        raise InvalidInput("HEADWAY_LEDGER_URL", HIDDEN, "the site has no database of its own")
    daemon = database_daemon(settings)
    if lost_address(settings):
        give_password(settings, say)
    if not settings.database_note.exists():
        note_database(settings, make_database(settings, clock, say))
        daemon.stop(signal.SIGINT, 60.0)
    cluster, newer = own_cluster(settings, say)
    if newer is not None:
        cluster = upgrade(cluster, newer, settings.database_url, clock, say)
    daemon.claim()
    cluster.become()


def note_database(settings: Settings, url: str) -> None:
    """Let the site's ledger be at *url* from now on."""
    keep_secret(settings.database_note, url)
    (_folder(settings) / UNFINISHED).unlink(missing_ok=True)


def own_cluster(settings: Settings, say: Say) -> tuple[Cluster, Binaries | None]:
    """The cluster that this site has, and the newer programs that it is to be brought to.

    Raises:
        NoDatabase: Nothing here can start it.
    """
    folder = _folder(settings)
    finish_upgrade(folder)
    account = _account(folder, say)
    now, newer = suiting(_usable(folder, account), made_by(folder))
    return Cluster(folder, now, account, database_daemon(settings)), newer


def client_programs(settings: Settings) -> Binaries:
    """Programs that speak to the site's databases: the newest, which know every older server.

    Raises:
        NoDatabase: There are none here.
    """
    folder = _folder(settings)
    usable = found(None, folder.parent / PROGRAMS)
    if not usable:
        raise NoDatabase("its programs pg_dump and pg_restore are not here")
    return max(usable, key=lambda each: each.major)


def suiting(usable: Sequence[Binaries], major: int) -> tuple[Binaries, Binaries | None]:
    """Those of *usable* that can run a cluster which PostgreSQL *major* made, and newer ones.

    The second are None unless those that are preferred are newer.

    Raises:
        NoDatabase: None can run it.
    """
    for binaries in usable:
        if binaries.major == major:
            return binaries, usable[0] if usable[0].major > major else None
    here = ", ".join(each.version for each in usable) or "none"
    raise NoDatabase(
        f"this site's database was made by PostgreSQL {major}; here is {here}",
        f"Install PostgreSQL {major} again, and `headway up` brings the database to a newer one "
        "beside it; or `headway restore` a backup in a new home",
    )


def made_by(folder: Path) -> int:
    """Which major version of PostgreSQL made the cluster in *folder*.

    Raises:
        NoDatabase: There is no cluster.
    """
    try:
        return int((folder / "data/PG_VERSION").read_text())
    except (OSError, ValueError):
        raise NoDatabase(f"the database in {folder} is gone or damaged") from None


def _folder(settings: Settings) -> Path:
    """Of the cluster: where it was made; a new one's is in the home.

    It is elsewhere where root's home is closed to the account that runs it. Whether a home
    is closed may change later: an existing cluster stays where it is.
    """
    if settings.database_note.exists():
        return hosting.folder_of(settings.database_note.read_text().strip())
    home = settings.home.resolve()
    ways = [each for each in (home, *home.parents) if each.exists()]
    if os.geteuid() == 0 and not all(each.stat().st_mode & stat.S_IXOTH for each in ways):
        name = hashlib.sha256(str(home).encode()).hexdigest()[:12]
        return ROOT_HOME / f"{CLOSED_HOMES_DATABASE}{name}"
    return home / "database"


def _account(folder: Path, say: Say) -> Account | None:
    try:
        return account_for(folder, say)
    except NoAccount as error:
        raise NoDatabase(error.cause) from error


def _usable(folder: Path, account: Account | None) -> list[Binaries]:
    return found(account.name if account is not None else None, folder.parent / PROGRAMS)


def _check_new(folder: Path) -> None:
    """Refuse a folder that no cluster can be made in.

    Raises:
        NoDatabase: Its path is too long, or there is a database in it already.
    """
    if len(str(folder)) > LONGEST_FOLDER:
        raise NoDatabase(f"the path of a socket in {folder} is too long; shorten HEADWAY_HOME")
    if folder.exists() and not (folder / UNFINISHED).exists() and any(folder.iterdir()):
        raise NoDatabase(
            f"a database is in {folder}, but its address, the file database.url in the home, is "
            "gone",
            "`headway up` makes that file anew; or move the folder away",
        )


def looked_at(settings: Settings) -> tuple[bool, str]:
    """Whether the site's database is as it should be, and what it is."""
    if settings.names_ledger:
        return True, "the one that was named for this site"
    if lost_address(settings):
        return False, "its password, the file database.url, is lost; `headway up` makes another one"
    if not settings.database_note.exists():
        return False, "there is none yet; `headway up` makes and starts a PostgreSQL"
    process, url = database_daemon(settings).process(), settings.database_url
    if process is not None and hosting.refuses(url):
        return False, "it has another password than database.url; `headway up` makes another one"
    if process is None or not hosting.answers(url):
        return (
            False,
            f"PostgreSQL does not run; run `headway up`, and see {database_daemon(settings).log}",
        )
    size = format_size(hosting.size_bytes(url))
    return True, f"PostgreSQL of the site's own, pid {process.pid}, {size}"
