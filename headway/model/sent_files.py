"""Files that a client sends to the site in chunks: what holds for code and for data alike.

Content is kept in chunks by their SHA-256, so that one changed line is one small upload, and what
broke off goes on. A manifest names each file with its chunks. It comes from a client and is not
trusted: what could be written anywhere else than below one new folder is refused.
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NoReturn, Self

from headway.errors import InvalidInput, shown
from headway.model.strict_json import read_strict
from headway.units import format_size

HEX = frozenset("0123456789abcdef")
_MOST_PATH_BYTES = 1024
_MOST_PART_BYTES = 255
_MOST_DEPTH = 32
_ENTRIES_OF_A_FILE = 20


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that travels."""

    path: str
    """Below its folder, with ``/``; the name of a single file."""
    size_bytes: int
    chunks: tuple[str, ...]
    """SHA-256 of each, in order; none of an empty file."""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What of one kind may travel."""

    field: str
    """What is said of where something is refused."""
    chunk_bytes: int
    """Every chunk of a file but its last one is so large."""
    files: int
    """At most, and so many folders."""
    size_bytes: int
    """Of all files together, as a manifest says: what is written is never more."""
    manifest_bytes: int
    instead: str
    """What to do with more."""


@dataclass(frozen=True)
class Manifest:
    """What was sent, by its files. A kind of it adds what it says beside these."""

    limits: ClassVar[Limits]
    own: ClassVar[Mapping[str, type]]
    """The fields that it says before its files, in this order."""
    entry: ClassVar[Sequence[str]]
    """What it says of a file, in this order."""

    files: tuple[SentFile, ...]
    """In the order of the bytes of their paths."""

    @classmethod
    def of(cls, files: Iterable[SentFile], **own: Any) -> Self:
        """The manifest of *files*, checked as one that comes from elsewhere.

        Raises:
            InvalidInput: It is no manifest that a gateway would take.
        """
        ordered = sorted(files, key=lambda each: each.path.encode(errors="surrogateescape"))
        found = cls(tuple(ordered), **own)
        found.check()
        return found

    @classmethod
    def read(cls, text: bytes) -> Self:
        """The manifest that a client has sent.

        One of more entries than any has is not parsed: an entry of two characters may take a
        hundred bytes then.

        Raises:
            InvalidInput: It is none, or one of its files could not lie below a new folder.
        """
        limits = cls.limits
        if len(text) > limits.manifest_bytes:
            most = f"give at most {format_size(limits.manifest_bytes)} of it"
            _refuse(limits.field, "a longer manifest", most)
        if sum(map(text.count, (b"[", b"{", b",", b'"'))) > _ENTRIES_OF_A_FILE * limits.files:
            most = f"give at most {limits.files:,} files: pack them"
            _refuse(limits.field, "a manifest of more entries", most)
        said = read_strict(text)
        kinds = {**cls.own, "files": list}
        if (
            not isinstance(said, dict)
            or said.keys() != kinds.keys()
            or not all(isinstance(said[key], kind) for key, kind in kinds.items())
        ):
            keys = ", ".join(f"{key} ({kind.__name__})" for key, kind in kinds.items())
            _refuse(limits.field, "no manifest", f"give an object with {keys}")
        files = tuple(_file(each, limits.field) for each in said.pop("files"))
        found = cls(files, **said)
        found.check()
        if found.text != text:
            allowed = "write the manifest as headway's client does"
            _refuse(limits.field, "another spelling", allowed)
        return found

    @cached_property
    def text(self) -> bytes:
        """As it is sent and kept: one manifest has one spelling."""
        said = {key: getattr(self, key) for key in self.own}
        said["files"] = [[getattr(file, key) for key in self.entry] for file in self.files]
        return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()

    @cached_property
    def content_id(self) -> str:
        """SHA-256 of the manifest: names all that it says."""
        return hashlib.sha256(self.text).hexdigest()

    @cached_property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(each.size_bytes for each in self.files)

    @cached_property
    def chunks(self) -> dict[str, int]:
        """Size of every chunk that its files are made of."""
        return dict(self._sized_chunks())

    def _sized_chunks(self) -> Iterator[tuple[str, int]]:
        whole = self.limits.chunk_bytes
        for file in self.files:
            for number, sha256 in enumerate(file.chunks):
                yield sha256, min(whole, file.size_bytes - number * whole)

    def check(self) -> None:
        """Raise `InvalidInput` for what a gateway does not take."""
        limits, count = self.limits, len(self.files)
        if count > limits.files:
            allowed = f"at most {limits.files:,} files travel; {limits.instead}"
            _refuse(limits.field, f"{count:,} files", allowed)
        for file in self.files:
            check_path(file.path, limits.field)
            _check_chunks(file, limits)
        if self.size_bytes > limits.size_bytes:
            largest = sorted(self.files, key=lambda each: each.size_bytes, reverse=True)[:3]
            named = (f"{shown(e.path)[1:-1]} ({format_size(e.size_bytes)})" for e in largest)
            allowed = (
                f"at most {format_size(limits.size_bytes)} travel; the largest are "
                f"{', '.join(named)}: {limits.instead}"
            )
            _refuse(limits.field, format_size(self.size_bytes), allowed)
        _check_names(self.files, limits)
        if any(self.chunks[sha256] != size for sha256, size in self._sized_chunks()):
            _refuse(limits.field, "a chunk of two sizes", "give each the size that it has")


def chunks_named(text: bytes) -> set[str]:
    """The chunks that a manifest which was checked before names."""
    return {sha256 for file in json.loads(text)["files"] for sha256 in file[-1]}


def _file(entry: Any, field: str) -> SentFile:
    """A file as *entry* says; what else it says makes its manifest one of another spelling."""
    match entry:
        case [str(path), int(size), *mode, list(chunks)] if not isinstance(size, bool):
            if all(isinstance(each, str) for each in chunks):
                return SentFile(path, size, tuple(chunks), mode == [True])
    allowed = "give path, size and chunks of each file as headway's client does"
    raise InvalidInput(field, entry, allowed)


def check_path(path: str, field: str) -> None:
    """Raise `InvalidInput` for a path that could lie elsewhere than below its folder.

    Nor may it hold what a terminal or another system would read as something else. *field* is what
    the refusal is about.
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


def _check_names(files: Sequence[SentFile], limits: Limits) -> None:
    """Refuse a path given twice or out of order, and one that some systems take for another.

    Neither may there be more folders than *limits* has files on the way to them, which take place
    on a disk, and in memory here, that the sizes of files do not tell.
    """
    paths = [each.path.encode() for each in files]
    if any(one >= other for one, other in pairwise(paths)):
        _refuse(limits.field, "files", "give each path once, in the order of their bytes")
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
                _refuse(limits.field, "/".join(parts[:depth]), allowed)
            if bool(found) != bool(number):
                _refuse(limits.field, "/".join(parts[:depth]), "it cannot be a file and a folder")
            folders, inside = max(folders, found), found
        if folders > limits.files:
            allowed = f"at most {limits.files:,} folders travel; {limits.instead}"
            _refuse(limits.field, "more folders", allowed)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _check_chunks(file: SentFile, limits: Limits) -> None:
    """Raise `InvalidInput` unless size and chunks of *file*, as a client says them, agree."""
    if not 0 <= file.size_bytes <= limits.size_bytes:
        allowed = f"give at most {format_size(limits.size_bytes)}"
        _refuse(limits.field, f"{file.path}: {file.size_bytes} B", allowed)
    if len(file.chunks) != -(-file.size_bytes // limits.chunk_bytes):
        allowed = f"give one chunk for each {format_size(limits.chunk_bytes)}"
        _refuse(limits.field, file.path, allowed)
    if not all(len(each) == 64 and HEX.issuperset(each) for each in file.chunks):
        allowed = "give the SHA-256 of each chunk in lower-case hexadecimal"
        _refuse(limits.field, file.path, allowed)


def _refuse(field: str, value: object, allowed: str) -> NoReturn:
    raise InvalidInput(field, value, allowed)
