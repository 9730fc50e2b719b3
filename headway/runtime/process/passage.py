"""A way for another user to what a program needs, through directories that user may not pass.

Root's Python or headway's home may lie below a directory that is root's alone,
as /root is. In a mount namespace of the program's own, such a directory is
covered by an empty one that may be passed, in which only what the program
needs is mounted again, at its own path. Nothing else below it is there, and
what is mounted keeps its permissions.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

_CLONE_NEWNS = 0x20000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18


class Passage(TypedDict):
    """What to mount. JSON, for the process that does it."""

    covers: list[str]
    """Directories that the user may not pass."""
    needs: list[tuple[str, bool]]
    """What is mounted again below them, and whether it may be written."""


def plan(user: tuple[int, int], needs: Iterable[tuple[Path, bool]]) -> Passage | None:
    """What *user* needs mounted to reach *needs*; None where nothing is in the way.

    Args:
        user: uid and gid.
        needs: Paths, and whether the program writes there.
    """
    passage = Passage(covers=[], needs=[])
    wanted = {path: False for path, _ in _both(needs)}
    wanted |= {path: True for path, writes in _both(needs) if writes}
    for path, writes in wanted.items():
        cover = _closed_above(path, user)
        if cover is not None:
            passage["covers"].append(str(cover))
            passage["needs"].append((str(path), writes))
    passage["covers"] = sorted(set(passage["covers"]))
    passage["needs"].sort()
    return passage if passage["covers"] else None


def _both(needs: Iterable[tuple[Path, bool]]) -> list[tuple[Path, bool]]:
    """Each path as it is written and without links, if it is there."""
    there = [(path, writes) for path, writes in needs if path.exists()]
    return [(each, writes) for path, writes in there for each in (path, path.resolve())]


def _closed_above(path: Path, user: tuple[int, int]) -> Path | None:
    """The first directory on the way to *path* that *user* may not pass."""
    for folder in reversed(path.parents):
        found = folder.stat()
        uid, gid = user
        bit = stat.S_IXOTH
        if found.st_uid == uid:
            bit = stat.S_IXUSR
        elif found.st_gid == gid:
            bit = stat.S_IXGRP
        if not found.st_mode & bit:
            return folder
    return None


def make(passage: Passage) -> None:
    """Make the passage for this process and what it starts; while it is still root.

    Raises:
        OSError: This machine does not let headway mount; says what to do.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _checked(libc.unshare(_CLONE_NEWNS))
        _mount(libc, b"none", "/", _REC | _PRIVATE)
        # Held open, since their paths are covered by then.
        held = [(os.open(path, os.O_PATH), path, writes) for path, writes in passage["needs"]]
        for cover in passage["covers"]:
            _mount(libc, b"tmpfs", cover, _NOSUID | _NODEV, kind=b"tmpfs")
            Path(cover).chmod(0o755)
        for source, path, writes in held:
            _place(Path(path), directory=stat.S_ISDIR(os.fstat(source).st_mode))
            _mount(libc, f"/proc/self/fd/{source}".encode(), path, _BIND)
            if not writes:
                _mount(libc, b"none", path, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)
            os.close(source)
    except OSError as error:
        raise OSError(
            f"its user may not pass {', '.join(passage['covers'])}, and no way round could be "
            f"mounted ({error}); install headway and its Python where every user may pass, "
            "such as /opt/headway"
        ) from error


def _place(path: Path, *, directory: bool) -> None:
    """Something to mount on, which everybody may pass."""
    for folder in reversed(path.parents):
        if not folder.exists():
            _make_folder(folder)
    if path.exists():
        return
    if directory:
        _make_folder(path)
    else:
        path.touch(mode=0o600)


def _make_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)  # whatever the umask is: Python lists the folders that it imports from


def _mount(
    libc: ctypes.CDLL, source: bytes, target: str, flags: int, *, kind: bytes = b"none"
) -> None:
    _checked(libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), None))


def _checked(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
