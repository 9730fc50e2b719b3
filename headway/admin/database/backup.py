"""One file with all that a site's databases hold, and a site from such a file."""

import io
import json
import os
import shutil
import signal
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import make_url

from headway.admin.database.dump import dump, load
from headway.admin.database.own import (
    client_programs,
    make_database,
    note_database,
    start_database,
)
from headway.clock import Clock
from headway.durable import give_name, replace_file
from headway.errors import HeadwayError, InvalidInput, LedgerUnreachable
from headway.home import settle
from headway.ledger import hosting
from headway.ledger.database import SCHEMA_VERSION
from headway.node.daemon import (
    database_daemon,
    gateway_daemon,
    guard_daemon,
    server_daemon,
    worker_daemon,
)
from headway.settings import Settings

Say = Callable[[str], None]
_ABOUT = "about.json"
_UP = (server_daemon, worker_daemon, gateway_daemon, guard_daemon)
_PARTS = ("ledger", "prefect")
_NAMES = (_ABOUT, *(f"{part}.{end}" for part in _PARTS for end in ("dump", "db")))


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
            "schema": SCHEMA_VERSION,
            "made_at": clock.now().isoformat(),
        }
        replace_file(folder / _ABOUT, json.dumps(about))
        for part, url in _addresses(settings).items():
            if _is_postgresql(url):
                dump(client_programs(settings), url, folder / f"{part}.dump")
            elif (source := Path(make_url(url).database or "")).exists():
                _copy_sqlite(source, folder / f"{part}.db")
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
    if any(daemon(settings).process() for daemon in _UP):
        raise NotRestored("the site, or a run of it, is up; stop it with `headway down --stop`")
    settle(settings.home)  # a home that is closed to its database's account has it elsewhere
    with _folder(settings.home) as folder:
        parts = _unpacked(file, folder)
        if all(part.suffix == ".db" for part in parts.values()):
            _restore_files(settings, parts, replace=replace)
        elif settings.names_ledger:
            _restore_elsewhere(settings, parts)
        else:
            _restore_own(settings, clock, parts, replace=replace, say=say)
    (settings.state_dir / "registered").unlink(missing_ok=True)


def _restore_own(
    settings: Settings, clock: Clock, parts: dict[str, Path], *, replace: bool, say: Say
) -> None:
    if settings.ledger_file.exists():
        raise NotRestored(f"the site is on SQLite, in {settings.ledger_file}; move that away")
    made = not settings.database_note.exists()
    if made:
        url, started = make_database(settings, clock, say), True
    else:
        url, started = settings.database_url, start_database(settings, clock, say)
    if not (replace or made or hosting.is_empty(url)):
        raise NotRestored("the site has a ledger; --replace lets it go")
    beside = hosting.make_beside(url)
    for part, name in beside.items():
        load(client_programs(settings), hosting.database_of(url, name), parts[part])
    hosting.exchange(url)
    if made:
        note_database(settings, url)
    if started:
        database_daemon(settings).stop(signal.SIGINT, 60.0)


def _restore_elsewhere(settings: Settings, parts: dict[str, Path]) -> None:
    """Into databases that the operator named: empty ones, since headway does not drop those."""
    addresses = _addresses(settings)
    for part, file in parts.items():
        if _is_postgresql(addresses[part]):
            load(client_programs(settings), addresses[part], file)


def _restore_files(settings: Settings, parts: dict[str, Path], *, replace: bool) -> None:
    if settings.database_note.exists() or settings.names_ledger:
        raise NotRestored("it is of a site on SQLite; set HEADWAY_HOME to a new home for it")
    targets = {
        part: Path(make_url(url).database or "") for part, url in _addresses(settings).items()
    }
    if not replace and targets["ledger"].exists():
        raise NotRestored(f"there is a ledger in {targets['ledger']}; --replace lets it go")
    for part, file in parts.items():
        targets[part].parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for end in ("-wal", "-shm"):
            targets[part].with_name(targets[part].name + end).unlink(missing_ok=True)
        file.replace(targets[part])


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
    found = {each.stem: each for end in ("dump", "db") for each in folder.glob(f"*.{end}")}
    if "ledger" not in found:
        raise NotRestored(f"there is no ledger in {file}")
    return {part: found[part] for part in _PARTS if part in found}


def _addresses(settings: Settings) -> dict[str, str]:
    embedded = f"sqlite:///{settings.home}/prefect/prefect.db"
    return {"ledger": settings.database_url, "prefect": settings.server_database or embedded}


def _is_postgresql(url: str) -> bool:
    return make_url(url).get_backend_name() == "postgresql"


def _copy_sqlite(source: Path, target: Path) -> None:
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as reads,
        closing(sqlite3.connect(target)) as writes,
    ):
        reads.backup(writes)


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """A folder on the file system of *parent* that only this user passes; gone at the end."""
    before = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory(prefix=".headway-backup-", dir=parent) as name:
            yield Path(name)
    finally:
        os.umask(before)
