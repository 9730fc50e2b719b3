"""Who owns the database's files and process: PostgreSQL refuses to run as root."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headway.errors import HeadwayError

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
        raise NoAccount("there is no useradd")
    say(f"making the system account {name}, which PostgreSQL is to run as: it refuses root …")
    command = [useradd, "--system", "--no-create-home", "--home-dir", "/nonexistent"]
    command += ["--shell", "/usr/sbin/nologin", "--user-group", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    made = _account(name)
    if done.returncode != 0 or made is None:
        raise NoAccount(done.stderr.strip() or f"useradd: exit status {done.returncode}")
    return made
