"""Folders that somebody else has filled: however deep, long or odd the names in them are.

Neither recursion nor paths hold here: Python's own walk and removal end at about a thousand
nested folders, and the kernel takes no path of more than 4,096 bytes.
"""

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG, S_IXGRP, S_IXOTH, S_IXUSR

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_AGAIN_CPU_S = 0.25
_MOST_NAMES = 1 << 18


@dataclass(slots=True)
class _Level:
    """A folder on the way from the top to the one that is being read."""

    name: str
    identity: tuple[int, int]
    left: list[tuple[str, tuple[int, int]]] = field(default_factory=list)
    """Folders in it that are still to be read: name, and device and inode."""
    names: set[str] = field(default_factory=set)
    """What was found in it."""
    changed_ns: int = 0
    """When it had last changed as it was read."""
    again_s: float = 0.0
    """Not before it is looked whether there is more in it; by the time that the walk has taken."""


class _Walk:
    """A walk through a tree by descriptors, of which three are open.

    Of its top, of where it is, and of the folder above that where it has just come from there.
    """

    def __init__(self, top: Path) -> None:
        self._top = os.open(top, _FOLDER)
        self._here, self._above = os.dup(self._top), -1
        self._device = os.fstat(self._top).st_dev
        self._levels = [_Level("", self._identity())]

    def close(self) -> None:
        for each in (self._top, self._here, self._above):
            if each >= 0:
                os.close(each)

    def read(self) -> Iterator[tuple[int, str, os.stat_result]]:
        """What lies in the folder where the walk is: its descriptor, a name, what it is."""
        level = self._levels[-1]
        with suppress(OSError):
            level.changed_ns = os.fstat(self._here).st_mtime_ns
        with suppress(OSError), os.scandir(self._here) as entries:
            for entry in entries:
                if entry.name in level.names:
                    continue
                level.names.add(entry.name)
                with suppress(OSError):
                    stat = entry.stat(follow_symlinks=False)
                    if stat.st_dev != self._device:
                        continue
                    if S_ISDIR(stat.st_mode):
                        identity = stat.st_dev, stat.st_ino
                        level.left.append((entry.name, identity))
                    yield self._here, entry.name, stat
        level.again_s = time.thread_time() + _AGAIN_CPU_S

    def go_on(self) -> bool:
        """Go to the next folder, or stay where there is more by now; False when all were read."""
        while self._levels:
            if self._has_more(self._levels[-1]):
                return True
            if self._levels[-1].left:
                name, identity = self._levels[-1].left.pop()
                with suppress(OSError):
                    self._enter(name)
                    self._levels.append(_Level(name, identity))
                    return True
            else:
                self._levels.pop()
                if self._levels:
                    self._leave()
        return False

    def _has_more(self, level: _Level) -> bool:
        """Whether the folder where the walk is may have got more since a while ago.

        Else who makes folders faster than they are walked through would be noticed late.
        """
        if time.thread_time() < level.again_s or len(level.names) > _MOST_NAMES:
            return False
        with suppress(OSError):
            return os.fstat(self._here).st_mtime_ns != level.changed_ns
        return False

    def _identity(self) -> tuple[int, int]:
        found = os.fstat(self._here)
        return found.st_dev, found.st_ino

    def _enter(self, name: str) -> None:
        inner = os.open(name, _FOLDER, dir_fd=self._here)
        if self._above >= 0:
            os.close(self._above)
        self._above, self._here = self._here, inner

    def _leave(self) -> None:
        """Go to the folder of the last level, in which this one lay when it was entered.

        Where it has been moved meanwhile the way is gone again from the top; levels that are not
        found there any more are dropped.
        """
        if self._above >= 0:
            os.close(self._here)
            self._here, self._above = self._above, -1
            return
        with suppress(OSError):
            self._enter("..")
            os.close(self._above)
            self._above = -1
            if self._identity() == self._levels[-1].identity:
                return
        os.close(self._here)
        self._here = os.dup(self._top)
        for depth, level in enumerate(self._levels[1:], 1):
            try:
                self._enter(level.name)
            except OSError:
                del self._levels[depth:]
                return


def lets_pass(folder: os.stat_result, user: tuple[int, int]) -> bool:
    """Whether a folder of which ``stat`` says this lets *user*, uid and gid, pass."""
    uid, gid = user
    own = S_IXUSR if folder.st_uid == uid else S_IXGRP
    bit = own if uid == folder.st_uid or gid == folder.st_gid else S_IXOTH
    return bool(folder.st_mode & bit)


def stats_below(top: Path) -> Iterator[os.stat_result]:
    """What ``lstat`` says of each thing below *top*, as `below` finds it."""
    return (stat for _, _, stat in below(top))


def below(top: Path) -> Iterator[tuple[int, str, os.stat_result]]:
    """Each thing below *top*: an open folder, its name in there, and what ``lstat`` says of it.

    No link is followed, nor another file system entered. What vanishes meanwhile, or may not be
    read, is left out.

    Raises:
        OSError: *top* is no folder, or may not be read.
    """
    walk = _Walk(top)
    try:
        more = True
        while more:
            yield from walk.read()
            more = walk.go_on()
    finally:
        walk.close()


def remove(path: Path) -> None:
    """Remove *path* and all below it; nothing, where there is nothing. No link is followed.

    Folders that may not be read or written are opened first, where this process owns them. Not by
    root, which needs that nowhere: ``chmod -R`` follows a link that a folder's owner, who may live
    still, puts in the place of what it has just looked at.

    Raises:
        OSError: Something of it is left; the message is that of ``rm``.
    """
    removed = _told("rm", "-rf", path)
    if removed.returncode and os.geteuid() != 0 and path.is_dir() and not path.is_symlink():
        _told("chmod", "-R", "u+rwx", path)
        removed = _told("rm", "-rf", path)
    if removed.returncode:
        raise OSError(removed.stderr.strip()[-300:] or f"rm has ended with {removed.returncode}")


def _told(tool: str, option: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [tool, option, *words[:-1], "--", words[-1]],
        env=os.environ | {"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def opened(path: Path, flags: int) -> int | None:
    """A file descriptor of *path*; None when no regular file is there. Never waits.

    It may be its writer's to exchange: what was opened is looked at. Nor one that has another owner
    than its folder, and other names: its program may have made this one for somebody else's file.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link, a socket, a directory
            return None
        raise
    found = os.fstat(fd)
    is_theirs = found.st_nlink == 1 or found.st_uid == path.parent.stat().st_uid
    if S_ISREG(found.st_mode) and is_theirs:
        return fd
    os.close(fd)
    return None
