"""A whole database as one file, and back again, by PostgreSQL's own programs."""

import subprocess
from pathlib import Path

from sqlalchemy import make_url

from headway.admin.database.binaries import Binaries
from headway.admin.database.cluster import environment
from headway.errors import HeadwayError

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
