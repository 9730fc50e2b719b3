"""The outputs of a run on this node, listed and opened for others.

A program wrote what lies there, and may be at work on it at this moment: it is hostile. So every
folder on the way is opened from the one before, no link is ever followed, and what was opened is
looked at, not its name.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headway.model.run_file import MOST_FILES, MOST_FOLDERS, MOST_NAME_BYTES, OutputFile, OutputList

OUTPUTS_FOLDER = "outputs"
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_ENTRIES = 2 * MOST_FILES
_MOST_NAMES_BYTES = 8 << 20
"""Of all names of a list together, which stand in it twice, and up to four times as long."""
_HASHED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenOutput:
    """An output that is open: its descriptor, and what it was when it was opened."""

    descriptor: int
    file: OutputFile

    def piece(self, offset: int, length: int) -> bytes:
        """At most *length* bytes from *offset* on; none at its end."""
        return os.pread(self.descriptor, length, offset)

    def sha256(self, is_given_up: Callable[[], bool] = lambda: False) -> str | None:
        """Of all of it; None where it was changed meanwhile, or as soon as *is_given_up*."""
        digest, offset = hashlib.sha256(), 0
        while not is_given_up() and (data := self.piece(offset, _HASHED_BYTES)):
            digest.update(data)
            offset += len(data)
        whole = offset == self.file.size_bytes and not self.is_changed()
        return digest.hexdigest() if whole else None

    def is_changed(self) -> bool:
        """Whether somebody has written to it since it was opened."""
        return version_of(os.fstat(self.descriptor)) != self.file.version

    def close(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)


def list_outputs(run_folder: Path, below: str = OUTPUTS_FOLDER) -> OutputList | None:
    """What lies below the outputs in *run_folder*; None where there is no such folder."""
    try:
        top = _open_top(run_folder, below)
    except (FileNotFoundError, NotADirectoryError):
        return None
    walk = _Walk(os.fstat(top).st_uid)
    walk.folder(top, b"", MOST_FOLDERS)
    files = tuple(sorted(walk.files, key=lambda each: each.name))
    return OutputList(files, walk.complete, walk.left_out)


@contextmanager
def opened_output(
    run_folder: Path, name: bytes, below: str = OUTPUTS_FOLDER
) -> Iterator[OpenOutput]:
    """The output called *name*, for as long as the block lasts. As `open_output`."""
    found = open_output(run_folder, name, below)
    try:
        yield found
    finally:
        found.close()


def open_output(run_folder: Path, name: bytes, below: str = OUTPUTS_FOLDER) -> OpenOutput:
    """Open the output called *name*, as `name_from` allows it; *below* is where outputs lie.

    Raises:
        OSError: There is none, or it is no file of the run's own.
    """
    *folders, last = name.split(b"/")
    here = _open_top(run_folder, below)
    try:
        owner = os.fstat(here).st_uid
        for each in folders:
            deeper = os.open(each, FOLDER_FLAGS, dir_fd=here)
            os.close(here)
            here = deeper
        descriptor = os.open(last, _FILE, dir_fd=here)
    finally:
        os.close(here)
    seen = os.fstat(descriptor)
    if not _is_its_own(seen, owner):
        os.close(descriptor)
        raise FileNotFoundError(name)
    return OpenOutput(descriptor, _output(name, seen))


def version_of(seen: os.stat_result) -> str:
    """Differs when the file may: its program cannot set the time of a change by itself."""
    return f"{seen.st_size:x}-{seen.st_ctime_ns:x}-{seen.st_ino:x}"


class _Walk:
    """One walk through a folder that may change meanwhile."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._entries = 0
        self._names_bytes = 0
        self.files: list[OutputFile] = []
        self.complete = True
        self.left_out = 0

    def folder(self, descriptor: int, prefix: bytes, deeper: int) -> None:
        """Take in what is in the folder, which is closed at the end."""
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    self._entries += 1
                    if (
                        self._entries > _MOST_ENTRIES
                        or len(self.files) >= MOST_FILES
                        or self._names_bytes > _MOST_NAMES_BYTES
                    ):
                        self.complete = False
                        return
                    self._entry(descriptor, os.fsencode(entry.name), prefix, deeper)
        finally:
            os.close(descriptor)

    def _entry(self, descriptor: int, last: bytes, prefix: bytes, deeper: int) -> None:
        try:
            seen = os.stat(last, dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISDIR(seen.st_mode):
                self._file(prefix + last, seen)
            elif deeper > 1:
                below = os.open(last, FOLDER_FLAGS, dir_fd=descriptor)
                self.folder(below, prefix + last + b"/", deeper - 1)
            else:
                self.complete = False
        except OSError:
            self.left_out += 1  # it is gone, or a link has taken its place

    def _file(self, name: bytes, seen: os.stat_result) -> None:
        if len(name) > MOST_NAME_BYTES:
            self.complete = False  # nobody could ask for it
        elif _is_its_own(seen, self._owner):
            self._names_bytes += len(name)
            self.files.append(_output(name, seen))
        else:
            self.left_out += 1


def _open_top(run_folder: Path, below: str = OUTPUTS_FOLDER) -> int:
    parent = os.open(run_folder, FOLDER_FLAGS)
    try:
        return os.open(below, FOLDER_FLAGS, dir_fd=parent)
    finally:
        os.close(parent)


def _is_its_own(seen: os.stat_result, owner: int) -> bool:
    """Whether it is a file, and none of somebody else's to which the program has made a link."""
    return stat.S_ISREG(seen.st_mode) and (seen.st_nlink <= 1 or seen.st_uid == owner)


def _output(name: bytes, seen: os.stat_result) -> OutputFile:
    return OutputFile(name, seen.st_size, seen.st_mtime_ns, version_of(seen))
