"""Files that a client sends to the site in chunks: what holds for code and for data alike.

What is said of them comes from a client and is not trusted: what could be written anywhere else
than below one new folder is refused.
"""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn, Protocol

from headway.errors import InvalidInput, shown
from headway.units import format_size

HEX = frozenset("0123456789abcdef")
_MOST_PATH_BYTES = 1024
_MOST_PART_BYTES = 255
_MOST_DEPTH = 32


class SentFile(Protocol):
    """A file that travels."""

    @property
    def path(self) -> str:
        """Below its folder, with ``/``."""
        ...

    @property
    def size_bytes(self) -> int:
        """Of all its chunks."""
        ...

    @property
    def chunks(self) -> tuple[str, ...]:
        """SHA-256 of each, in order; none of an empty file."""
        ...

    def chunk_bytes(self, number: int) -> int:
        """Size of one of its chunks."""
        ...


def chunk_sizes(files: Sequence[SentFile]) -> dict[str, int]:
    """Size of every chunk that *files* are made of."""
    return {
        sha256: file.chunk_bytes(number)
        for file in files
        for number, sha256 in enumerate(file.chunks)
    }


def check_path(path: str, field: str) -> None:
    """Raise `InvalidInput` for a path that could lie elsewhere than below its folder.

    Nor may it hold what a terminal or another system would read as something else. *field* is what
    the refusal is about, here and below.
    """
    parts = path.split("/")
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        _refuse(field, path, "rename the file: its name is not UTF-8")
    if not path or length > _MOST_PATH_BYTES or len(parts) > _MOST_DEPTH:
        most = f"{_MOST_PATH_BYTES} bytes and {_MOST_DEPTH} folders"
        _refuse(field, path, f"give paths of 1 byte to {most}")
    for part in parts:
        if part in ("", ".", "..") or len(part.encode()) > _MOST_PART_BYTES:
            _refuse(field, path, "give a path below the folder, without empty parts, . and ..")
        if any(unicodedata.category(each)[0] == "C" or each == "\\" for each in part):
            _refuse(
                field, path, "rename the file: control and format characters and \\ do not travel"
            )


def check_names(files: Sequence[SentFile], field: str) -> None:
    """Refuse a path given twice or out of order, and one that some systems take for another."""
    paths = [each.path.encode() for each in files]
    if any(one >= other for one, other in pairwise(paths)):
        _refuse(field, "files", "give each path once, in the order of their bytes")
    seen: dict[str, str] = {}
    folders = set()
    for file in files:
        parts = file.path.split("/")
        for length in range(1, len(parts) + 1):
            name = "/".join(parts[:length])
            before = seen.setdefault(_folded(name), name)
            if before != name:
                _refuse(
                    field, name, f"rename it: {shown(before)} differs in case or Unicode form alone"
                )
            if length < len(parts):
                folders.add(name)
    for file in files:
        if file.path in folders:
            _refuse(field, file.path, "it cannot be a file and a folder")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def check_chunks(file: SentFile, chunk_bytes: int, most_bytes: int, field: str) -> None:
    """Raise `InvalidInput` unless size and chunks of *file* agree.

    Args:
        file: What a client has said of it.
        chunk_bytes: Size of each chunk but the last one.
        most_bytes: What a file may have.
        field: What the refusal is about.
    """
    if not 0 <= file.size_bytes <= most_bytes:
        allowed = f"give at most {format_size(most_bytes)}"
        _refuse(field, f"{file.path}: {file.size_bytes} B", allowed)
    if len(file.chunks) != -(-file.size_bytes // chunk_bytes):
        _refuse(field, file.path, f"give one chunk for each {format_size(chunk_bytes)}")
    if not all(len(each) == 64 and HEX.issuperset(each) for each in file.chunks):
        _refuse(field, file.path, "give the SHA-256 of each chunk in lower-case hexadecimal")


def _refuse(field: str, value: object, allowed: str) -> NoReturn:
    raise InvalidInput(field, value, allowed)
