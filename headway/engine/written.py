"""Files that a job's wrapper has written, or its user in the place of one: how they are read."""

import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from headway.engine.port import Used
from headway.engine.record import Record
from headway.trees import opened
from headway.units import MIB

T = TypeVar("T")
RECORD, USED = TypeAdapter(Record), TypeAdapter(Used)
DOCUMENT = TypeAdapter(dict[str, Any])


def _end_of(path: Path) -> bytes:
    """The end of file *path*, a MiB at most; nothing of a link, a pipe, or another one's file.

    Raises:
        OSError: It cannot be read; `FileNotFoundError` where there is none.
    """
    if (fd := opened(path, os.O_RDONLY)) is None:
        raise FileNotFoundError(path)
    with os.fdopen(fd, "rb"):
        return os.pread(fd, MIB, max(os.fstat(fd).st_size - MIB, 0))


def text_of(path: Path) -> str:
    """What *path* says; empty where there is none."""
    try:
        return _end_of(path).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""


def document_of(path: Path, kind: TypeAdapter[T]) -> T | None:
    """The document at *path*; None where there is none, not all of it yet, or no such one."""
    try:
        return kind.validate_json(_end_of(path))
    except (OSError, ValueError):
        return None
