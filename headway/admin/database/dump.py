"""A whole database as one file, and back again, by PostgreSQL's own programs."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sqlalchemy import make_url

from headway.admin.database.binaries import Binaries
from headway.admin.database.cluster import UNFINISHED, Cluster, environment
from headway.clock import Clock
from headway.errors import HeadwayError
from headway.ledger import hosting

_LIMIT_S = 6 * 3600.0


class DumpFailed(HeadwayError):
    """A database could not be written to a file, or read from it."""

    def __init__(self, what: str, cause: str) -> None:
        self.what = what
        self.cause = cause
        super().__init__(f"{what} failed ({cause}); the database was not changed")


def dump(binaries: Binaries, url: str, file: Path) -> None:
    """Write the database at *url*, as it is at one moment, to *file*.

    Raises:
        DumpFailed: It does not answer, or there is no room.
    """
    _run(binaries, "pg_dump", url, "--format=custom", f"--file={file}")


def load(binaries: Binaries, url: str, file: Path) -> None:
    """Fill the empty database at *url* from *file*: with all of it, or with nothing.

    What logins of nodes were granted is granted anew: this server may not have them.

    Raises:
        DumpFailed: It is damaged, or of a newer PostgreSQL.
    """
    name = make_url(url).database
    options = [
        "--no-owner",
        "--no-privileges",
        "--exit-on-error",
        "--single-transaction",
        f"--dbname={name}",
    ]
    _run(binaries, "pg_restore", url, *options, str(file))


def _run(binaries: Binaries, program: str, url: str, *arguments: str) -> None:
    # Addresses have passwords, and other users see the arguments of programs.
    done = subprocess.run(
        [binaries.path(program), "--no-password", *arguments],
        env=environment() | _connection(url), cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=_LIMIT_S,
    )  # fmt: skip
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise DumpFailed(program, said[-1] if said else f"exit status {done.returncode}")


def _connection(url: str) -> dict[str, str]:
    parts = make_url(url)
    told = {
        "PGHOST": str(parts.query.get("host") or parts.host or ""),
        "PGPORT": str(parts.port or ""),
        "PGUSER": parts.username or "",
        "PGPASSWORD": str(parts.password or ""),
        "PGDATABASE": parts.database or "",
    }
    return {name: value for name, value in told.items() if value}


_DATABASES = (hosting.LEDGER_DATABASE, hosting.PREFECT_DATABASE)


def upgrade(
    cluster: Cluster, newer: Binaries, url: str, clock: Clock, say: Callable[[str], None]
) -> Cluster:
    """Bring *cluster*, which is stopped, to *newer*; as it is then, stopped.

    It may be broken off at any point: until the new one is whole the old one is not touched,
    and it is kept under another name.

    Raises:
        StartFailed: One of the two does not come up.
        DumpFailed: What is in the old one cannot be read, or there is no room.
    """
    was = cluster.binaries
    say(f"bringing the database from PostgreSQL {was.version} to {newer.version} …")
    beside = replace(cluster, folder=_beside(cluster.folder), binaries=newer)
    with tempfile.TemporaryDirectory(prefix=".headway-upgrade-", dir=cluster.folder) as name:
        files = {database: Path(name) / database for database in _DATABASES}
        cluster.start(url, clock)
        for database, file in files.items():
            dump(newer, hosting.database_of(url, database), file)
        cluster.stop()
        beside.have_folder()
        password = make_url(url).password
        beside.make(str(password))
        new_url = hosting.socket_url(str(beside.folder), str(password))
        beside.start(new_url, clock)
        hosting.have_databases(new_url)
        for database, file in files.items():
            load(newer, hosting.database_of(new_url, database), file)
        beside.stop()
    (beside.folder / UNFINISHED).unlink()
    kept = cluster.folder / f"data-{was.major}"
    shutil.rmtree(kept, ignore_errors=True)
    cluster.data.rename(kept)
    finish_upgrade(cluster.folder)
    say(f"the database of PostgreSQL {was.version} is kept in {kept}; remove it when all is well")
    return replace(cluster, binaries=newer)


def finish_upgrade(folder: Path) -> None:
    """Put the new cluster in its place where an upgrade was broken off in its last step."""
    beside, data = _beside(folder), folder / "data"
    if not data.exists() and (beside / "data").exists() and not (beside / UNFINISHED).exists():
        (beside / "data").rename(data)
    if data.exists():
        shutil.rmtree(beside, ignore_errors=True)


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.new")
