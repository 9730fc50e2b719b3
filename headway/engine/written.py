"""Files that a job's wrapper has written, or its user in the place of one: how they are read."""

import errno
import os
import stat
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from headway.engine.port import Used
from headway.engine.record import Record
from headway.units import MIB

T = TypeVar("T")
RECORD, USED = TypeAdapter(Record), TypeAdapter(Used)
DOCUMENT = TypeAdapter(dict[str, Any])
_NO_FILE = {None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EACCES}


def _end_of(path: Path) -> bytes:
    """The end of file *path*, a MiB at most; nothing of a link, a pipe, or another one's file.

    It may be its writer's to exchange: what was opened is looked at. A second name is one of
    a file of the folder's owner, or may have been made for somebody else's.

    Raises:
        OSError: It cannot be read; `FileNotFoundError` where there is none.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        is_theirs = found.st_nlink == 1 or found.st_uid == path.parent.stat().st_uid
        if not stat.S_ISREG(found.st_mode) or not is_theirs:
            raise FileNotFoundError(path)
        return os.pread(file.fileno(), MIB, max(found.st_size - MIB, 0))


def text_of(path: Path) -> str:
    """What *path* says; empty where there is none."""
    try:
        return _end_of(path).decode(errors="replace")
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return ""


def document_of(path: Path, kind: TypeAdapter[T]) -> T | None:
    """The document at *path*; None where there is none, not all of it yet, or no such one."""
    try:
        return kind.validate_json(_end_of(path))
    except (OSError, ValueError):
        return None
