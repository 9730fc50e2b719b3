"""A set while it is fetched: below a temporary name, counted, with a note of how far it is."""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from headway.clock import Clock
from headway.durable import give_name, replace_file, sync_folder
from headway.errors import InvalidInput
from headway.home import passable
from headway.model.job_fields import write_size
from headway.model.job_parts import Dataset
from headway.staging.errors import CacheFull, SourceChanged
from headway.staging.manifest import DATA, Manifest
from headway.staging.source import Source, SourceFile
from headway.trees import remove
from headway.units import MIB, format_size

Progress = Callable[[int, int | None], None]
"""Is told bytes done and, where known, bytes in all."""

_STEP_BYTES = 16 * MIB
"""A source that does not tell its size gets room in steps of this size."""
_NOTE_EVERY_S = 0.5


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
    owner: int | None = None
    """uid of whom it is for; None for this process's own user."""


@dataclass(kw_only=True)
class Meter:
    """Told of every piece before it is written."""

    dataset: Dataset
    """What the job said of the data."""
    total_bytes: int | None
    """What the source says of its size; None if nothing."""
    reserve: Callable[[Note], None]
    """Makes room as the note says and writes the note; may raise `CacheFull`."""
    write_note: Callable[[Note], None]
    """Writes the note alone."""
    progress: Progress
    """The caller's."""
    clock: Clock
    """Spaces the notes."""
    done_bytes: int = 0

    def __post_init__(self) -> None:
        self._noted_s = self.clock.monotonic_s()
        self._have_room(self.total_bytes or 0)
        self.progress(0, self.total_bytes)

    def count(self, piece_bytes: int) -> None:
        """The next piece has *piece_bytes*."""
        done = self.done_bytes + piece_bytes
        if self.total_bytes is None:
            check_size(self.dataset, done)
            if done > self._reserved_bytes:
                self._grow(done)
        elif done > self.total_bytes:
            raise SourceChanged(self.dataset.uri, "it grew")
        self.done_bytes = done
        self.progress(done, self.total_bytes)
        now_s = self.clock.monotonic_s()
        if now_s - self._noted_s >= _NOTE_EVERY_S:
            self._noted_s = now_s
            self.write_note(Note(self._reserved_bytes, done, self.total_bytes))

    def _grow(self, needed_bytes: int) -> None:
        try:
            self._have_room(needed_bytes + _STEP_BYTES)
        except CacheFull:
            self._have_room(needed_bytes)

    def _have_room(self, size_bytes: int) -> None:
        self.reserve(Note(size_bytes, self.done_bytes, self.total_bytes))
        self._reserved_bytes = size_bytes


def check_size(dataset: Dataset, found_bytes: int) -> None:
    """Refuse a data set that is far (a tenth and 1 MiB) above what the job declares.

    Raises:
        InvalidInput: Of ``dataset.size``, naming both sizes.
    """
    declared = dataset.size
    if declared is not None and found_bytes > declared + declared // 10 + MIB:
        raise InvalidInput(
            "dataset.size",
            write_size(declared),
            f"the data set has {format_size(found_bytes)} or more; correct it, or dataset.uri",
        )


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
        self, source: Source, pieces: Pieces, on_bytes: Callable[[int], None]
    ) -> Mapping[str, str]:
        """Copy every file and hash it meanwhile; their SHA-256 by their names.

        *on_bytes* is told the size of each piece before it is written, and
        may raise to stop.
        """
        hashes = {}
        each_to_disk = len(source.files) <= _FEW_FILES
        for file in source.files:
            target = self.folder / DATA / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            sha = hashlib.sha256()
            with target.open("wb") as out:
                for piece in pieces(file):
                    on_bytes(len(piece))
                    sha.update(piece)
                    out.write(piece)
                out.flush()
                if each_to_disk:
                    os.fsync(out.fileno())
            hashes[file.name] = sha.hexdigest()
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


def _give(path: Path, mode: int, user: tuple[int, int] | None) -> None:
    """Make *path*, which nobody else has ever been able to reach, *user*'s."""
    path.chmod(mode)
    if user is not None:
        os.chown(path, *user)
