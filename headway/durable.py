"""Files and folders that are there whole or not at all, also after a loss of power; and locks.

A rename alone is not enough: after a loss of power the new name may be there with an empty file
behind it, since names and contents reach the disk apart from each other.
"""

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

UNFINISHED = ".new-"
"""How the name of a folder begins that is still being filled."""
_FILLED_WITHIN_S = 30.0


def replace_file(
    path: Path,
    content: str | bytes,
    *,
    mode: int = 0o600,
    lasts: bool = True,
    owner: tuple[int, int] | None = None,
) -> None:
    """Put *content* at *path*, so that every reader sees all of it or what was there before.

    Args:
        path: The file; its folder is there.
        content: All that it is to hold.
        mode: Its permissions, whatever the umask is.
        lasts: Whether it must survive a loss of power once this returns. False for what is
            written every second and may be lost: whoever reads it has to bear an empty file.
        owner: Uid and gid, -1 for one that stays; None for this process's own.

    Raises:
        OSError: It could not be written; what was there before is still there.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(part, flags, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            file.write(content.encode() if isinstance(content, str) else content)
            if lasts:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if lasts:
        sync_folder(path.parent)


def give_name(part: Path, path: Path) -> None:
    """Rename *part*, a file or a folder whose files are on the disk, to *path* for good."""
    _sync(part)
    part.rename(path)
    sync_folder(path.parent)


def give_name_to_all(part: Path, path: Path) -> None:
    """The same for the folder *part*, whose files may not be on the disk yet."""
    for folder, _, names in os.walk(part):
        for name in names:
            _sync(Path(folder) / name)
        sync_folder(Path(folder))
    give_name(part, path)


def sync_folder(folder: Path) -> None:
    """Bring the names in *folder* to the disk."""
    _sync(folder, os.O_DIRECTORY)


def _sync(path: Path, kind: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | kind)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_file(path: Path) -> int | None:
    """The lock *path*, as a descriptor that holds it; None where another one has it.

    The kernel frees it when its process is gone. Whoever holds it may remove the file: it may
    have been removed between open and flock, and what was locked then nobody else will ever find.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def remove_unfinished(parent: Path, now_s: float) -> list[Path]:
    """Remove folders in *parent* that nobody can still be filling; which those were.

    Args:
        parent: Where they lie.
        now_s: The time, in seconds since the epoch. A process that was stopped for longer than
            it takes to fill one finds its folder gone, and fails without having done anything.
    """
    removed = []
    for folder in parent.glob(f"{UNFINISHED}*"):
        with suppress(FileNotFoundError):  # it was finished, or another process removes it
            if now_s - folder.stat().st_mtime > _FILLED_WITHIN_S:
                shutil.rmtree(folder)
                removed.append(folder)
    return removed
