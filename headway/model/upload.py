"""A data set that a member has sent to the site: which files, of which content.

Content is kept in chunks by their SHA-256, so that what broke off goes on and what is there already
is not sent again. A manifest comes from a client and is not trusted: `UploadManifest.read`
refuses whatever could be written anywhere else than below one new folder.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Self

from headway.errors import InvalidInput
from headway.model.sent_files import (
    check_chunks,
    check_names,
    check_path,
    chunk_sizes,
    read_manifest,
)
from headway.units import MIB, TIB, format_size

UPLOAD_CHUNK_BYTES = 4 * MIB
"""Every chunk of a file but its last one is so large; one is sent in one request."""
MOST_UPLOAD_FILES = 100_000
MOST_UPLOAD_BYTES = TIB
MOST_UPLOAD_MANIFEST_BYTES = 32 * MIB
_FIELD = "data"
_KEYS = ("is_directory", "files")


@dataclass(frozen=True, slots=True)
class UploadFile:
    """One file of a data set."""

    path: str
    """Below its folder, with ``/``; the name of a single file."""
    size_bytes: int
    chunks: tuple[str, ...]
    """SHA-256 of each, in order; none of an empty file."""

    def chunk_bytes(self, number: int) -> int:
        """Size of one of its chunks."""
        return min(UPLOAD_CHUNK_BYTES, self.size_bytes - number * UPLOAD_CHUNK_BYTES)


@dataclass(frozen=True)
class UploadManifest:
    """What a data set consists of."""

    is_directory: bool
    files: tuple[UploadFile, ...]
    """In the order of the bytes of their paths."""

    @classmethod
    def of(cls, files: Iterable[UploadFile], *, is_directory: bool) -> Self:
        """The manifest of *files*, checked as one that comes from elsewhere.

        Raises:
            InvalidInput: It is no manifest that a gateway would take.
        """
        ordered = tuple(sorted(files, key=lambda each: each.path.encode(errors="surrogateescape")))
        found = cls(is_directory, ordered)
        found.check()
        return found

    @classmethod
    def read(cls, text: bytes) -> Self:
        """The manifest that a client has sent.

        Raises:
            InvalidInput: It is none, or one of its files could not lie below a new folder.
        """
        match read_manifest(text, MOST_UPLOAD_FILES, _FIELD):
            case {"is_directory": bool(is_directory), "files": list(files)}:
                found = cls(is_directory, tuple(map(_file, files)))
            case _:
                raise InvalidInput(_FIELD, "no manifest", f"give an object with {_KEYS}")
        found.check()
        if found.text != text:
            allowed = "write the manifest as headway's client does"
            raise InvalidInput(_FIELD, "another spelling", allowed)
        return found

    @cached_property
    def text(self) -> bytes:
        """As it is sent and kept: one manifest has one spelling."""
        files = [[each.path, each.size_bytes, list(each.chunks)] for each in self.files]
        document = {"is_directory": self.is_directory, "files": files}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @cached_property
    def content_id(self) -> str:
        """SHA-256 of the manifest: names all of its content."""
        return hashlib.sha256(self.text).hexdigest()

    @cached_property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(each.size_bytes for each in self.files)

    @cached_property
    def chunks(self) -> dict[str, int]:
        """Size of every chunk that its files are made of."""
        return chunk_sizes(self.files)

    def check(self) -> None:
        """Raise `InvalidInput` for what a gateway does not take."""
        count = len(self.files)
        if count > MOST_UPLOAD_FILES:
            allowed = f"give at most {MOST_UPLOAD_FILES:,} files: pack them"
            raise InvalidInput(_FIELD, f"{count:,} files", allowed)
        if not self.is_directory and (count != 1 or "/" in self.files[0].path):
            raise InvalidInput(_FIELD, f"{count} files", "give one file, or a directory")
        for file in self.files:
            check_path(file.path, _FIELD)
            check_chunks(file, UPLOAD_CHUNK_BYTES, MOST_UPLOAD_BYTES, _FIELD)
        check_names(self.files, MOST_UPLOAD_FILES, _FIELD)
        if not 0 < self.size_bytes <= MOST_UPLOAD_BYTES:
            allowed = f"give data of 1 B to {format_size(MOST_UPLOAD_BYTES)}"
            raise InvalidInput(_FIELD, format_size(self.size_bytes), allowed)
        if any(self.chunks[c] != f.chunk_bytes(n) for f in self.files for n, c in _numbered(f)):
            raise InvalidInput(_FIELD, "a chunk of two sizes", "give each the size that it has")


def _numbered(file: UploadFile) -> Iterator[tuple[int, str]]:
    return enumerate(file.chunks)


@dataclass(frozen=True, slots=True)
class Upload:
    """A data set of a team's, as the ledger knows it."""

    team: str
    name: str
    content_id: str
    owner: str
    is_directory: bool
    files: int
    size_bytes: int
    put_at: datetime
    used_at: datetime
    """When a run with it was handed in last, or when it was put."""


def chunks_of(text: bytes) -> set[str]:
    """The chunks that a manifest which was checked before names."""
    return {sha256 for file in json.loads(text)["files"] for sha256 in file[2]}


def _file(entry: Any) -> UploadFile:
    match entry:
        case [str(path), int(size), list(chunks)]:
            if not isinstance(size, bool) and all(isinstance(each, str) for each in chunks):
                return UploadFile(path, size, tuple(chunks))
        case _:
            pass
    raise InvalidInput(_FIELD, entry, "give path, size and chunks of each file")
