"""A set while it is fetched: below a temporary name, with a note of how far it is."""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from headway.durable import give_name, replace_file, sync_folder
from headway.home import passable
from headway.staging.manifest import DATA, Manifest
from headway.staging.source import Source, SourceFile
from headway.trees import remove

Pieces = Callable[[SourceFile], Iterable[bytes]]
"""Reads a file of a source."""
Write = Callable[[Iterable[bytes]], str]
"""Writes a file from pieces, in the place of what it had; gives their SHA-256."""
Nearer = Callable[[SourceFile, Write], str | None]
"""Has a file written without its source; its SHA-256, or None where that is to be read."""
_NOTE = "note.json"
_FEW_FILES = 1000
"""Up to so many files each is flushed to the disk by itself; more of them all at once."""


@dataclass(frozen=True, slots=True)
class Note:
    """How far a fetch is: read by those who wait for it, and by the budget."""

    reserved_bytes: int = 0
    done_bytes: int = 0
    total_bytes: int | None = None
    owner: int | None = None
    """uid of whom it is for; None for this process's own user."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A folder ``KEY.TOKEN``; it belongs to whoever holds the key's lock."""

    folder: Path
    owner: int | None = None
    """uid of whom it is fetched for; read from a `note` where somebody else fetches it."""

    @classmethod
    def create(cls, parent: Path, key: str, owner: int | None = None) -> Self:
        """An empty one, for *owner*."""
        folder = parent / f"{key}.{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
        (folder / DATA).mkdir(mode=0o700)
        return cls(folder, owner)

    @classmethod
    def found_in(cls, parent: Path) -> list[Self]:
        """Every one, of living and dead fetches."""
        return [cls(folder) for folder in sorted(parent.iterdir())]

    @property
    def key(self) -> str:
        """The key it is fetched for."""
        return self.folder.name.partition(".")[0]

    def note(self) -> Note:
        """The last note; an empty one when there is none."""
        try:
            return Note(**json.loads((self.folder / _NOTE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return Note()

    def write_note(self, note: Note) -> None:
        """Replace the note."""
        noted = asdict(note) | {"owner": self.owner}
        replace_file(self.folder / _NOTE, json.dumps(noted), lasts=False)

    def copy(
        self,
        source: Source,
        pieces: Pieces,
        on_bytes: Callable[[int], None],
        nearer: Nearer | None = None,
    ) -> Mapping[str, str]:
        """Copy every file and hash it meanwhile; their SHA-256 by their names.

        *on_bytes* is told the size of each piece before it is written, and
        may raise to stop; of what is written anew, its size below zero.
        """
        hashes = {}
        each_to_disk = len(source.files) <= _FEW_FILES
        for file in source.files:
            target = self.folder / DATA / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            write = _Writing(target, on_bytes, to_disk=each_to_disk)
            sha256 = nearer(file, write) if nearer is not None else None
            hashes[file.name] = sha256 or write(pieces(file))
        if not each_to_disk:
            os.sync()
        return hashes

    def seal(
        self, source: Source, hashes: Mapping[str, str], user: tuple[int, int] | None = None
    ) -> Manifest:
        """Make the data *user*'s alone, read-only, and write the manifest: now it is a set."""
        for folder, _, names in os.walk(self.folder / DATA, topdown=False):
            for name in names:
                _give(Path(folder) / name, 0o400, user)
            sync_folder(Path(folder))
            _give(Path(folder), 0o500, user)
        manifest = Manifest.of(self.folder, source.uri, hashes, is_directory=source.is_directory)
        manifest.write(self.folder)
        sync_folder(self.folder)
        self.folder.chmod(passable())
        return manifest

    def move_to(self, folder: Path) -> None:
        """Give the sealed set its name, in one step that survives a power loss."""
        (self.folder / _NOTE).unlink(missing_ok=True)
        give_name(self.folder, folder)

    def remove(self) -> None:
        """Remove it, read-only or not."""
        remove(self.folder)


@dataclass(slots=True)
class _Writing:
    """Writes one file; what was written of it before does not count."""

    target: Path
    on_bytes: Callable[[int], None]
    to_disk: bool
    written_bytes: int = 0

    def __call__(self, pieces: Iterable[bytes]) -> str:
        if self.written_bytes:
            self.on_bytes(-self.written_bytes)
            self.written_bytes = 0
        sha = hashlib.sha256()
        with self.target.open("wb") as out:
            for piece in pieces:
                self.on_bytes(len(piece))
                self.written_bytes += len(piece)
                sha.update(piece)
                out.write(piece)
            out.flush()
            if self.to_disk:
                os.fsync(out.fileno())
        return sha.hexdigest()


def _give(path: Path, mode: int, user: tuple[int, int] | None) -> None:
    """Make *path*, which nobody else has ever been able to reach, *user*'s."""
    path.chmod(mode)
    if user is not None:
        os.chown(path, *user)
