"""Files that a client sends to the site in chunks: what holds for code and for data alike.

What is said of them comes from a client and is not trusted: what could be written anywhere else
than below one new folder is refused.
"""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn, Protocol

from headway.errors import InvalidInput, shown
from headway.model.strict_json import read_strict
from headway.units import format_size

HEX = frozenset("0123456789abcdef")
_MOST_PATH_BYTES = 1024
_MOST_PART_BYTES = 255
_MOST_DEPTH = 32
_ENTRIES_OF_A_FILE = 20


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


def read_manifest(text: bytes, most_files: int, field: str) -> Any:
    """The document in *text*; one of more entries than one of *most_files* files has is not parsed.

    Parsed, an entry of two characters may take a hundred bytes.

    Raises:
        InvalidInput: It is no JSON, or has too many entries.
    """
    if sum(map(text.count, (b"[", b"{", b",", b'"'))) > _ENTRIES_OF_A_FILE * most_files:
        _refuse(
            field, "a manifest of more entries", f"give at most {most_files:,} files: pack them"
        )
    return read_strict(text)


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


def check_names(files: Sequence[SentFile], most_folders: int, field: str) -> None:
    """Refuse a path given twice or out of order, and one that some systems take for another.

    Neither may there be more than *most_folders* folders on the way to them, which take place on a
    disk, and in memory here, that the sizes of files do not tell.
    """
    paths = [each.path.encode() for each in files]
    if any(one >= other for one, other in pairwise(paths)):
        _refuse(field, "files", "give each path once, in the order of their bytes")
    seen: dict[tuple[int, str], tuple[str, int]] = {}
    """By folder and folded name: the name as it is, and which folder it is; 0 for a file."""
    folders = 0
    for file in files:
        parts, inside = file.path.split("/"), 0
        for depth, part in enumerate(parts, 1):
            number = folders + 1 if depth < len(parts) else 0
            name, found = seen.setdefault((inside, _folded(part)), (part, number))
            if name != part:
                allowed = f"rename it: {shown(name)} differs in case or Unicode form alone"
                _refuse(field, "/".join(parts[:depth]), allowed)
            if bool(found) != bool(number):
                _refuse(field, "/".join(parts[:depth]), "it cannot be a file and a folder")
            folders, inside = max(folders, found), found
        if folders > most_folders:
            allowed = f"at most {most_folders:,} folders travel; leave some out, or pack them"
            _refuse(field, "more folders", allowed)


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
