"""What lies in one staged set: written last, so that a set without it is no set."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from headway.durable import replace_file

_NAME = "manifest.json"
DATA = "data"
"""Folder of the data within a set's folder."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file as it was stored."""

    name: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    """Changes with every write and cannot be set back: cheaper to ask than the content."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A staged set's own record of itself."""

    uri: str
    is_directory: bool
    size_bytes: int
    sha256: str
    files: tuple[StoredFile, ...]

    @classmethod
    def of(cls, folder: Path, uri: str, hashes: Mapping[str, str], *, is_directory: bool) -> Self:
        """Of the data below *folder* now, whose *hashes* by name were found when it was written."""
        files = _files_below(folder)
        told = [(each.name, hashes[each.name]) for each in files]
        return cls(
            uri,
            is_directory,
            sum(each.size_bytes for each in files),
            digest(told, is_directory=is_directory),
            files,
        )

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The manifest in *folder*; None where there is none that can be read."""
        try:
            told = json.loads((folder / _NAME).read_bytes())
            # Not by pydantic, which takes no name of bytes that are no text.
            files = tuple(StoredFile(**each) for each in told.pop("files"))
            told.pop("hashes", None)  # of each file, which an earlier version kept
            return cls(files=files, **told)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, folder: Path) -> None:
        """Write it into *folder* and to the disk."""
        replace_file(folder / _NAME, json.dumps(asdict(self)))

    def holds(self, folder: Path) -> bool:
        """Is the data below *folder* still what was stored?

        Names, sizes and times are compared. Where only times differ (somebody
        changed permissions, or the content), the content is hashed anew.
        """
        try:
            now = _files_below(folder)
            if now == self.files:
                return True
            sizes = [(each.name, each.size_bytes) for each in self.files]
            if sizes != [(each.name, each.size_bytes) for each in now]:
                return False
            hashes = [(name, _hash(folder / DATA / name)) for name, _ in sizes]
        except OSError:
            return False
        return digest(hashes, is_directory=self.is_directory) == self.sha256

    def path(self, folder: Path) -> Path:
        """What a job is given: the file, or the directory."""
        return folder / DATA if self.is_directory else folder / DATA / self.files[0].name


def digest(hashes: Iterable[tuple[str, str]], *, is_directory: bool) -> str:
    r"""SHA-256 of a data set from the names and SHA-256 of its files, in the order of the names.

    Of a file, its own. Of a directory, that of the listing that sha256sum
    prints for its files, empty directories left out::

        find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
    """
    if not is_directory:
        return next(sha for _, sha in hashes)
    listing = hashlib.sha256()
    for name, sha in hashes:
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        mark = "\\" if escaped != name else ""
        listing.update(os.fsencode(f"{mark}{sha}  {escaped}\n"))
    return listing.hexdigest()


def _files_below(folder: Path) -> tuple[StoredFile, ...]:
    """What lies below *folder* now, in the order of the names' bytes."""
    return tuple(sorted(_stored(folder / DATA), key=lambda each: os.fsencode(each.name)))


def _stored(data: Path) -> Iterable[StoredFile]:
    for folder, _, names in os.walk(data):
        for path in (Path(folder) / name for name in names):
            found = path.lstat()
            name = path.relative_to(data).as_posix()
            yield StoredFile(name, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
