"""The folder of code that a run brings along: which files, of which content.

Content is kept in chunks by their SHA-256, so that one changed line is one small upload. A manifest
names each file with its chunks; its own SHA-256 is the id of the code. A manifest comes from a
client and is not trusted: `CodeManifest.read` refuses whatever could be written anywhere else
than below one new folder.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, Self

from headway.errors import InvalidInput, shown
from headway.model.sent_files import (
    HEX,
    check_chunks,
    check_names,
    check_path,
    chunk_sizes,
    read_manifest,
)
from headway.units import MIB, format_size

CHUNK_BYTES = MIB
"""Every chunk of a file but its last one is so large."""
MOST_FILES = 10_000
MOST_BYTES = 100 * MIB
"""Of all files together, as a manifest says: what is written is never more."""
MOST_MANIFEST_BYTES = 4 * MIB
MOST_DIFF_BYTES = 64 * 1024
FIELD = "workdir"
"""Of a job: what is said of where a file is refused."""
_KEYS = ("commit", "diff", "files")
_MOST_COMMIT = 64


@dataclass(frozen=True, slots=True)
class CodeFile:
    """One file of a folder."""

    path: str
    """Below the folder, with ``/``."""
    size_bytes: int
    executable: bool
    chunks: tuple[str, ...]
    """SHA-256 of each, in order; none of an empty file."""

    def chunk_bytes(self, number: int) -> int:
        """Size of one of its chunks."""
        return min(CHUNK_BYTES, self.size_bytes - number * CHUNK_BYTES)


@dataclass(frozen=True)
class CodeManifest:
    """What a folder of code consists of, and which commit it was made from."""

    files: tuple[CodeFile, ...]
    """In the order of the bytes of their paths."""
    commit: str = ""
    """Of git, in hexadecimal; empty where the folder is in no repository."""
    diff: str = ""
    """What the tracked files differ in from the commit; only its beginning where it is long."""

    @classmethod
    def of(cls, files: Iterable[CodeFile], commit: str = "", diff: str = "") -> Self:
        """The manifest of *files*, checked as one that comes from elsewhere.

        Raises:
            InvalidInput: It is no manifest that a gateway would take.
        """
        ordered = tuple(sorted(files, key=lambda each: each.path.encode(errors="surrogateescape")))
        found = cls(ordered, commit, diff)
        found.check()
        return found

    @classmethod
    def read(cls, text: bytes) -> Self:
        """The manifest that a client has sent.

        Raises:
            InvalidInput: It is none, or one of its files could not lie below a new folder.
        """
        if len(text) > MOST_MANIFEST_BYTES:
            _refuse("a longer manifest", f"give at most {format_size(MOST_MANIFEST_BYTES)} of it")
        document = read_manifest(text, MOST_FILES, FIELD)
        if not isinstance(document, dict) or tuple(document) != _KEYS:
            _refuse("no manifest", f"give an object with {', '.join(_KEYS)}")
        commit, diff, files = (document[key] for key in _KEYS)
        if not (isinstance(commit, str) and isinstance(diff, str) and isinstance(files, list)):
            _refuse("no manifest", "give two texts and a list")
        found = cls(tuple(map(_file, files)), commit, diff)
        found.check()
        if found.text != text:
            _refuse("another spelling", "write the manifest as headway's client does")
        return found

    @cached_property
    def text(self) -> bytes:
        """As it is sent and kept: one manifest has one spelling."""
        files = [[f.path, f.size_bytes, f.executable, list(f.chunks)] for f in self.files]
        document = {"commit": self.commit, "diff": self.diff, "files": files}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @cached_property
    def code_id(self) -> str:
        """SHA-256 of the manifest: names content, commit and diff together."""
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
        if not self.files:
            _refuse("no file", "the folder has no file that git tracks or lets through")
        if len(self.files) > MOST_FILES:
            too_many = f"at most {MOST_FILES} files travel; leave some out by .gitignore"
            _refuse(f"{len(self.files)} files", too_many)
        _check_provenance(self.commit, self.diff)
        for file in self.files:
            check_path(file.path, FIELD)
            check_chunks(file, CHUNK_BYTES, MOST_BYTES, FIELD)
        if self.size_bytes > MOST_BYTES:
            _refuse(format_size(self.size_bytes), _too_large(self.files))
        check_names(self.files, MOST_FILES, FIELD)
        sizes: dict[str, int] = {}
        for file in self.files:
            for number, sha256 in enumerate(file.chunks):
                size = file.chunk_bytes(number)
                if sizes.setdefault(sha256, size) != size:
                    _refuse(file.path, f"chunk {sha256} cannot have two sizes")


def chunks_named(text: bytes) -> set[str]:
    """The chunks that a manifest which was checked before names."""
    return {sha256 for file in json.loads(text)["files"] for sha256 in file[3]}


def _file(entry: Any) -> CodeFile:
    match entry:
        case [str(path), int(size), bool(executable), list(chunks)]:
            if not isinstance(size, bool) and all(isinstance(each, str) for each in chunks):
                return CodeFile(path, size, executable, tuple(chunks))
        case _:
            pass
    raise _refused(entry, "give path, size, whether it is executable, and its chunks")


def _check_provenance(commit: str, diff: str) -> None:
    if len(commit) > _MOST_COMMIT or not HEX.issuperset(commit):
        _refuse(commit, "give the commit in lower-case hexadecimal")
    if len(diff.encode()) > MOST_DIFF_BYTES:
        _refuse("a longer diff", f"give at most {format_size(MOST_DIFF_BYTES)} of it")


def _too_large(files: Sequence[CodeFile]) -> str:
    largest = sorted(files, key=lambda each: each.size_bytes, reverse=True)[:3]
    named = ", ".join(f"{shown(e.path)[1:-1]} ({format_size(e.size_bytes)})" for e in largest)
    return (
        f"at most {format_size(MOST_BYTES)} travel; the largest are {named}: leave them out by "
        ".gitignore, or bring data as a dataset"
    )


def _refused(value: object, allowed: str) -> InvalidInput:
    return InvalidInput(FIELD, value, allowed)


def _refuse(value: object, allowed: str) -> NoReturn:
    raise _refused(value, allowed)
