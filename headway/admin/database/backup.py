"""One file with all that a site's databases hold, and a site from such a file."""

import io
import json
import os
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path

from headway.admin.database.dump import dump, load
from headway.admin.database.own import (
    client_programs,
    make_database,
    note_database,
    start_database,
)
from headway.admin.database.takeover import old_ledger
from headway.clock import Clock
from headway.durable import give_name, replace_file
from headway.errors import HeadwayError, InvalidInput, LedgerUnreachable
from headway.home import settle
from headway.ledger import Ledger, hosting
from headway.ledger.database import SCHEMA_VERSION
from headway.node.daemon import Daemon, database_daemon
from headway.settings import Settings

Say = Callable[[str], None]
_ABOUT = "about.json"
_UP = ("server", "scheduler", "worker", "gateway", "guard")
_PARTS = ("ledger", "prefect")
_NAMES = (_ABOUT, *(f"{part}.dump" for part in _PARTS))


class NotRestored(HeadwayError):
    """A backup was not put back; nothing was changed."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(f"nothing was restored: {cause}")


def back_up(settings: Settings, clock: Clock, file: Path) -> None:
    """Write what the site's databases hold to *file*, which only this user may read.

    Each database is written as it is at one moment; the ledger's comes first, since a run that
    Prefect alone knows is taken in again.

    Raises:
        DumpFailed: A database cannot be read, or there is no room.
        LedgerUnreachable: The site's own PostgreSQL does not answer.
        NoDatabase: There are no programs of PostgreSQL here.
    """
    if settings.owns_database and not hosting.answers(settings.database_url):
        cause = "its PostgreSQL is stopped; `headway up` starts it, then this command works"
        raise LedgerUnreachable(str(settings.home), cause)
    with _folder(file.parent) as folder:
        about = {
            "headway": version("headway"),
            "schema": Ledger.schema(settings.database_url),
            "made_at": clock.now().isoformat(),
        }
        replace_file(folder / _ABOUT, json.dumps(about))
        for part, url in _addresses(settings).items():
            dump(client_programs(settings), url, folder / f"{part}.dump")
        whole = folder / "backup.tar"
        with tarfile.open(whole, "w") as archive:
            for name in _NAMES:
                if (folder / name).exists():
                    archive.add(folder / name, name)
        give_name(whole, file)


def restore(settings: Settings, clock: Clock, file: Path, *, replace: bool, say: Say) -> None:
    """Let the site hold what *file* has; the site must be down.

    Args:
        settings: The site's.
        clock: The time by which is waited.
        file: What `back_up` wrote.
        replace: Whether what the site holds now may go.
        say: Is told what happens.

    Raises:
        NotRestored: The site is up, or holds something; or the file is no backup.
        InvalidInput: The home is another user's.
        DumpFailed: A part of it cannot be read.
    """
    if any(Daemon(name, settings.state_dir).process() for name in _UP):
        raise NotRestored("the site, or a run of it, is up; stop it with `headway down --stop`")
    settle(settings.home)  # a home that is closed to its database's account has it elsewhere
    with _folder(settings.home) as folder:
        parts = _unpacked(file, folder)
        if settings.names_ledger:
            _restore_elsewhere(settings, parts)
        else:
            _restore_own(settings, clock, parts, replace=replace, say=say)
    (settings.state_dir / "registered").unlink(missing_ok=True)


def _restore_own(
    settings: Settings, clock: Clock, parts: dict[str, Path], *, replace: bool, say: Say
) -> None:
    if old_ledger(settings).exists():
        raise NotRestored(f"the site is on SQLite, in {old_ledger(settings)}; move that away")
    made = not settings.database_note.exists()
    if made:
        url, started = make_database(settings, clock, say), True
    else:
        url, started = settings.database_url, start_database(settings, clock, say)
    if not (replace or made or hosting.is_empty(url)):
        raise NotRestored(
            "this site has a ledger already; add --replace to give it up for the backup"
        )
    _exchange(settings, url, parts)
    _let_nodes_in(url)
    if made:
        note_database(settings, url)
    if started:
        database_daemon(settings).stop(signal.SIGINT, 60.0)


def _exchange(settings: Settings, url: str, parts: dict[str, Path]) -> None:
    beside = hosting.make_beside(url)
    for part, name in beside.items():
        load(client_programs(settings), hosting.database_of(url, name), parts[part])
    hosting.exchange(url)


def put_back(settings: Settings, clock: Clock, file: Path, say: Say) -> None:
    """Let the site's own database, to which nothing is connected, hold what *file* has.

    Unlike `restore` it leaves the schema as it is in *file*, for the package that made it.

    Raises:
        DumpFailed: A part of it cannot be read; nothing was changed.
    """
    start_database(settings, clock, say)
    with _folder(settings.home) as folder:
        _exchange(settings, settings.database_url, _unpacked(file, folder))
    (settings.state_dir / "registered").unlink(missing_ok=True)


def _restore_elsewhere(settings: Settings, parts: dict[str, Path]) -> None:
    """Into databases that the operator named: empty ones, since headway does not drop those."""
    addresses = _addresses(settings)
    for part, file in parts.items():
        if part in addresses:
            load(client_programs(settings), addresses[part], file)
    _let_nodes_in(addresses["ledger"])


def _let_nodes_in(url: str) -> None:
    """Grant to the logins of nodes, as far as the server has them, what they need."""
    with closing(Ledger.upgrade(url)) as ledger:
        ledger.node_logins.renew()


def _unpacked(file: Path, folder: Path) -> dict[str, Path]:
    """The parts of the backup *file*, each as a file in *folder*."""
    try:
        with tarfile.open(file) as archive:
            for name in set(_NAMES) & set(archive.getnames()):
                with (folder / name).open("wb") as part:
                    shutil.copyfileobj(archive.extractfile(name) or io.BytesIO(), part)
        about = json.loads((folder / _ABOUT).read_text())
    except (tarfile.TarError, OSError, ValueError) as error:
        raise InvalidInput(
            "FILE", str(file), f"give what `headway backup` wrote ({error})"
        ) from None
    if about["schema"] > SCHEMA_VERSION:
        raise NotRestored(
            f"{file} is of headway {about['headway']}, newer than this one; install that one"
        )
    found = {each.stem: each for each in folder.glob("*.dump")}
    if "ledger" not in found:
        raise NotRestored(f"there is no ledger in {file}")
    return {part: found[part] for part in _PARTS if part in found}


def _addresses(settings: Settings) -> dict[str, str]:
    """Of the databases that are the site's: a Prefect server's elsewhere may not be."""
    server = {} if settings.server_database is None else {"prefect": settings.server_database}
    return {"ledger": settings.database_url, **server}


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """A folder on the file system of *parent* that only this user passes; gone at the end."""
    before = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory(prefix=".headway-backup-", dir=parent) as name:
            yield Path(name)
    finally:
        os.umask(before)
