"""Headway's folder on this node, and who may reach what in it.

    home/          0711 where headway is root, since what runs as another user passes it
      runs/ID/     0711: log, outputs and checkpoint in it are 0700 and the program's user's,
                   told and gang-… headway's: its program reads there what it is told
      cache/       0711: see `headway.staging.cache`
      secrets/     0711: a folder for each container in it is 0700 and the program's user's
      work/        0711: the same, with the container's copy of its code
      slurm/       0711: jobs; what a member's wrote is in a folder that is 0700 and theirs
      users/       0711: a team's, in it a user's; what is in that is 0700 and the program's user's
      environments/  0711: a team's, by hash; what programs read in one is root's and their group's
      samples/     0755: public data
      postgresql/  0755: public programs, which the database's account starts
      database/    0700: the site's own PostgreSQL, and its account's
      ballast      room that is given up where the disk is full, so that more can be freed
      the rest     0700, its files 0600: ledger, keys, tokens, addresses, logs, models

Where headway is an ordinary user's, nobody else passes: 0700 all of it.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from headway import trees
from headway.durable import replace_file, sync_folder
from headway.errors import InvalidInput
from headway.units import MIB, format_size

ROOT_HOME = Path("/var/lib/headway")
"""Of root's site: other users may pass on the way to it, as they may not through /root."""
_SAMPLES = "samples"
PROGRAMS = "postgresql"
"""Folder for programs of PostgreSQL, where the system has none."""
_LEFT = frozenset({_SAMPLES, PROGRAMS, "database"})
"""What is in a home and is not closed: public, or another account's."""
CLOSED_HOMES_DATABASE = "database-"
"""How folders in `ROOT_HOME` begin that are databases of root's sites below closed folders."""
_PASSED = frozenset({"runs", "cache", "secrets", "slurm", "work", "environments", "users"})
_JOBS_OWN = "environments"
"""What is in `engines` and stays as it is: jobs of engines make it."""
TOLD_FOLDER, GANG_FOLDER = "told", "gang-"
"""How folders in a run's begin that are headway's, and in which its program finds what it is told.
No program may write there; a closed one would be closed to the program that runs."""
_MARKS = frozenset({"node.id", "ledger.db", "ledger.url", "database.url"})
"""What every home has that was settled to its end."""
CONFIG = "config.yaml"
"""What the operator writes: see `headway.settings`."""
_NAMES = frozenset(
    {*_LEFT, *_PASSED, "auth", "containers", "engines", "models", "prefect", "state"}
    | {"ballast", CONFIG, "gpus.csv", "networks.csv", "lost+found"}
)
"""What is in one that was not."""
_OTHERS = 0o077
_OPERATORS_BYTES = MIB
"""Most of a file that an operator writes."""
_SHORT_BYTES = 64 * MIB
"""With less PostgreSQL, which writes its log in files of 16 MiB, may not start."""
_BALLAST_BYTES = 256 * MIB
_BALLAST_SHARE = 20
"""Of a small disk the ballast takes one part in so many."""


def keep_private() -> None:
    """What this process makes from now on is its user's alone, unless it says otherwise."""
    os.umask(0o077)


def passable() -> int:
    """Mode of a folder that those whom this process becomes must pass."""
    return 0o711 if os.geteuid() == 0 else 0o700


def have_passable(folder: Path) -> None:
    """Have *folder*, which may be passed and not listed.

    Raises:
        NotADirectoryError: Something else is there, which stays as it is.
    """
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(exist_ok=True)
            each.chmod(passable())
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if stat.S_IMODE(folder.stat().st_mode) != passable():
        folder.chmod(passable())


def samples(home: Path) -> Path:
    """Folder for the samples' data, the only one of headway's that jobs may name.

    Not below *home* where the programs of root's site cannot pass to it.
    """
    closed = any(not each.stat().st_mode & stat.S_IXOTH for each in home.parents if each.exists())
    return (ROOT_HOME if closed and os.geteuid() == 0 else home) / _SAMPLES


def settle(home: Path) -> None:
    """Have the home, with nothing in it open that an earlier version left open.

    Raises:
        InvalidInput: It is no directory, or not headway's own: another user could exchange what
            is in it, and a folder of other things, such as /tmp, would be closed to others.
    """
    if home.exists() and (wrong := _not_own(home)):
        allowed = f"{wrong}; give a directory of its own"
        raise InvalidInput("HEADWAY_HOME", str(home), allowed, where="environment")
    have_passable(home)
    for entry in os.scandir(home):
        others = entry.name.startswith(CLOSED_HOMES_DATABASE)
        if entry.is_symlink() or entry.name in _LEFT or others:
            continue
        if not entry.is_dir():
            _close(Path(entry.path))
        elif entry.name not in _PASSED:
            _close_all(Path(entry.path), but=_JOBS_OWN if entry.name == "engines" else "")
    _settle_runs(home / "runs")
    _settle_cache(home / "cache")


def _not_own(home: Path) -> str:
    """Why *home*, which is there, is not headway's own; empty where it is."""
    if not home.is_dir():
        return "it is no directory"
    owner = home.stat().st_uid
    if owner != os.geteuid():
        return f"it belongs to uid {owner}, not to {os.geteuid()}"
    names = {each.name for each in home.iterdir()}
    own = (".node.", CLOSED_HOMES_DATABASE)
    others = sorted(name for name in names - _NAMES if not name.startswith(own))
    if names & _MARKS or not others:
        return ""
    return f"it holds other things ({', '.join(others[:3])}), which would be closed to others"


def read_operators(path: Path) -> tuple[bytes, int] | None:
    """What is in *path*, and its mode; None where there is no such file.

    Raises:
        InvalidInput: It is a link, or others than the operator may have written it.
        PermissionError: It is another user's.
    """
    if path.is_symlink():
        raise InvalidInput("file", str(path), "it is a link; give a file", where=path.name)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):  # `settle` refuses such a home
        return None
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        owners = {0, os.geteuid(), path.parent.stat().st_uid}  # the folder's could exchange it
        shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if shared or found.st_uid not in owners or not stat.S_ISREG(found.st_mode):
            mode = f"mode {stat.S_IMODE(found.st_mode):04o}, uid {found.st_uid}"
            allowed = f"others may have written it; type `chmod 600 {path}` once that is not so"
            raise InvalidInput("file", mode, allowed, where=str(path))
        return opened.read(_OPERATORS_BYTES), found.st_mode


def disk_of(path: Path) -> str:
    """The disk that *path* is or will be on, its size, and what of it is free."""
    there = next(each for each in (path.resolve(), *path.resolve().parents) if each.exists())
    mount = next(each for each in (there, *there.parents) if each.is_mount())
    disk = os.statvfs(there)
    size, free = (format_size(n * disk.f_frsize) for n in (disk.f_blocks, disk.f_bavail))
    files = ", and no room for another file" if disk.f_files and not disk.f_favail else ""
    return f"the disk at {mount} has {free} of {size} free{files}"


def is_short(home: Path) -> bool:
    """Whether the disk of *home* is full, or as good as full."""
    disk = os.statvfs(home)
    left = disk.f_bavail * disk.f_frsize
    return left < _SHORT_BYTES or bool(disk.f_files and not disk.f_favail)


@contextmanager
def ballast_given_up(home: Path, say: Callable[[str], None]) -> Iterator[bool]:
    """Within it a full disk has the room of the home's ballast, which is made again afterwards.

    A database that cannot write does not start, and without it nothing else could be freed.
    Yields whether the disk is full; *say* is told.
    """
    ballast, short = home / "ballast", home.exists() and is_short(home)
    if short and ballast.exists():
        say(f"{disk_of(home)}: giving up {ballast}, to free more …")
        ballast.unlink()
    try:
        yield short
    finally:
        with suppress(OSError):
            _have_ballast(home, ballast)


def _have_ballast(home: Path, ballast: Path) -> None:
    disk = os.statvfs(home)
    wanted_bytes = min(_BALLAST_BYTES, disk.f_blocks * disk.f_frsize // _BALLAST_SHARE)
    room = disk.f_bavail * disk.f_frsize >= 2 * wanted_bytes + _SHORT_BYTES
    if ballast.exists() or not room or _not_own(home):
        return
    with ballast.open("xb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, wanted_bytes)
        except OSError:  # somebody else took the room
            ballast.unlink()


def node_identity(home: Path) -> str:
    """The id of the node whose home it is, made when it is first asked for.

    It stays when the machine is renamed or started anew. A copy of a home is the
    same node to the site, so an image of a machine must not hold one.
    """
    kept = home / "node.id"
    if not kept.exists():
        have_passable(home)
        own = home / f".node.{uuid4().hex}.new"
        replace_file(own, f"{uuid4()}\n")
        with suppress(FileExistsError):  # another process was faster: its id holds
            kept.hardlink_to(own)
        own.unlink()
        sync_folder(home)
    return kept.read_text().strip()


def _settle_runs(runs: Path) -> None:
    if not runs.is_dir():
        return
    runs.chmod(passable())
    for run in _folders(runs):
        run.chmod(passable())
        for entry in os.scandir(run):
            if not entry.is_symlink() and not entry.name.startswith((TOLD_FOLDER, GANG_FOLDER)):
                _close(Path(entry.path))


def _settle_cache(cache: Path) -> None:
    """Sets of version 0.1 could be read by everybody; they are asked for under other keys now."""
    if not (cache / "sets").is_dir():
        return
    for folder in _folders(cache / "sets"):
        if folder.stat().st_mode & stat.S_IROTH:
            folder.chmod(0o700)


def _folders(parent: Path) -> list[Path]:
    return [Path(each.path) for each in os.scandir(parent) if each.is_dir(follow_symlinks=False)]


def _close(path: Path) -> None:
    with suppress(FileNotFoundError):  # of a site that is at work
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)


def _close_all(top: Path, but: str) -> None:
    for folder, inside, names in os.walk(top):
        if but in inside and folder == str(top):
            inside.remove(but)
        _close(Path(folder))
        for name in names:
            path = Path(folder) / name
            if not path.is_symlink():
                _close(path)


def strip_set_ids(folder: Path) -> int:
    """Take the set-uid and set-gid bits from all below *folder*; how many had one.

    What is there was written by a program that is gone. No link is followed,
    and nothing is opened.
    """
    found = 0
    if not folder.is_dir():
        return found
    for descriptor, name, seen in trees.below(folder):
        bits = seen.st_mode & (stat.S_ISUID | stat.S_ISGID)
        if bits and (stat.S_ISREG(seen.st_mode) or stat.S_ISDIR(seen.st_mode)):
            found += _strip(name, descriptor)
    return found


def _strip(name: str, descriptor: int) -> bool:
    if not sys.platform.startswith("linux"):
        mode = stat.S_IMODE(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)
        os.chmod(name, mode & 0o1777, dir_fd=descriptor, follow_symlinks=False)
        return True
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
    try:
        seen = os.fstat(handle)
        if stat.S_ISLNK(seen.st_mode):
            return False
        Path(f"/proc/self/fd/{handle}").chmod(stat.S_IMODE(seen.st_mode) & 0o1777)
        return True
    finally:
        os.close(handle)
