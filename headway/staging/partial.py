"""A set while it is fetched: below a temporary name, with a note of how far it is."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from headway.durable import give_name, replace_file, sync_folder
from headway.home import passable
from headway.staging.manifest import DATA, Manifest, digest
from headway.staging.source import Source, SourceFile

Pieces = Callable[[SourceFile], Iterable[bytes]]
"""Reads a file of a source."""
_NOTE = "note.json"
_FEW_FILES = 1000
"""Up to so many files each is flushed to the disk by itself; more of them all at once."""


@dataclass(frozen=True, slots=True)
class Note:
    """How far a fetch is: read by those who wait for it, and by the budget."""

    reserved_bytes: int = 0
    done_bytes: int = 0
    total_bytes: int | None = None


class Partial:
    """A folder ``KEY.TOKEN``; it belongs to whoever holds the key's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, parent: Path, key: str) -> Self:
        """An empty one."""
        folder = parent / f"{key}.{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
        (folder / DATA).mkdir(mode=0o700)
        return cls(folder)

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
        replace_file(self.folder / _NOTE, json.dumps(asdict(note)), lasts=False)

    def copy(self, source: Source, pieces: Pieces, on_bytes: Callable[[int], None]) -> str:
        """Copy every file and hash it meanwhile; the set's SHA-256.

        *on_bytes* is told the size of each piece before it is written, and
        may raise to stop.
        """
        hashes = []
        each_to_disk = len(source.files) <= _FEW_FILES
        for file in source.files:
            target = self.folder / DATA / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            sha = hashlib.sha256()
            with target.open("xb") as out:
                for piece in pieces(file):
                    on_bytes(len(piece))
                    sha.update(piece)
                    out.write(piece)
                out.flush()
                if each_to_disk:
                    os.fsync(out.fileno())
            hashes.append((file.name, sha.hexdigest()))
        if not each_to_disk:
            os.sync()
        return digest(hashes, is_directory=source.is_directory)

    def seal(self, source: Source, sha256: str, user: tuple[int, int] | None = None) -> Manifest:
        """Make the data *user*'s alone, read-only, and write the manifest: now it is a set."""
        for folder, _, names in os.walk(self.folder / DATA, topdown=False):
            for name in names:
                _give(Path(folder) / name, 0o400, user)
            sync_folder(Path(folder))
            _give(Path(folder), 0o500, user)
        manifest = Manifest.of(self.folder, source.uri, sha256, is_directory=source.is_directory)
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
        for folder, _, _ in os.walk(self.folder):
            Path(folder).chmod(0o700)
        shutil.rmtree(self.folder)


def _give(path: Path, mode: int, user: tuple[int, int] | None) -> None:
    """Make *path*, which nobody else has ever been able to reach, *user*'s."""
    path.chmod(mode)
    if user is not None:
        os.chown(path, *user)
