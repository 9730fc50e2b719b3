"""Fetches the outputs of a run into a folder: what is there already is not fetched again.

The names come from a program that somebody else may have written. So only a folder that holds
nothing else is written to, and what is fetched gets its name when it is whole and checked.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.client.run_files import OutputPlace
from headway.clock import Clock
from headway.code.folder import NOTES
from headway.durable import replace_file
from headway.errors import GatewayUnreachable, HeadwayError, InvalidInput
from headway.model.run_file import name_from
from headway.units import format_size

_TRIES = 5
_PAUSE_S = 2.0
_READ_BYTES = 1 << 20

if TYPE_CHECKING:
    from headway.client import Client

Tell = Callable[[int], object]
"""Is told how many bytes more are here."""


class DownloadFailed(HeadwayError):
    """An output could not be fetched as it is."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        self.cause = cause
        super().__init__(f"{path} was not fetched: {cause}; the same command goes on with it")


def chosen(files: Sequence[dict[str, Any]], only: Sequence[str]) -> list[dict[str, Any]]:
    """Those of *files* whose path, or whose last part of it, fits one of *only*, if any."""
    return [
        each
        for each in files
        if not only
        or any(
            fnmatchcase(name, pattern)
            for pattern in only
            for name in (each["path"], each["path"].rpartition("/")[2])
        )
    ]


def take_folder(folder: Path, owner: str) -> None:
    """Make *folder* the one for the outputs of *owner*: a run, or one attempt of it.

    Raises:
        InvalidInput: Something else is in it, which could be overwritten.
    """
    note = folder / NOTES / "run"
    folder.mkdir(parents=True, exist_ok=True)
    if note.parent.is_symlink():
        raise InvalidInput("DIR", str(folder), f"{NOTES} in it is a link; give a new folder")
    try:
        known = note.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        known = "" if any(folder.iterdir()) else owner
    if known != owner:
        held = f"the outputs of run {known}" if known else "something else"
        raise InvalidInput("DIR", str(folder), f"{held} is in it; give a new or an empty folder")
    note.parent.mkdir(exist_ok=True)
    replace_file(note, owner)


@dataclass(frozen=True, slots=True)
class Download:
    """Fetches outputs of one run into one folder, which is its own."""

    client: "Client"
    clock: Clock
    run_id: str
    attempt: int | None
    folder: Path
    tell: Tell

    def check_room(self, files: Sequence[dict[str, Any]]) -> None:
        """Raise `InvalidInput` where *files* do not fit, before anything is fetched."""
        needed = sum(each["bytes"] for each in files if not self._is_here(each))
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            allowed = f"{format_size(needed)} are to be fetched and {format_size(free)} are free"
            raise InvalidInput("DIR", str(self.folder), f"{allowed}; choose some with --only")

    def fetch(self, file: dict[str, Any]) -> bool:
        """Have *file* here, whole and checked; whether it had to be fetched.

        Raises:
            DownloadFailed: It was not to be had as it is listed.
        """
        if self._is_here(file):
            self.tell(file["bytes"])
            return False
        part = self._notes / hashlib.sha256(file["href"].encode()).hexdigest()[:40]
        _drop_link(part)
        cause: Exception | str = ""
        for attempt in range(_TRIES):
            if attempt:
                self.clock.sleep(_PAUSE_S)
            try:
                cause = self._attempt(file, part)
            except GatewayUnreachable as error:
                cause = error
            except (HeadwayError, OSError) as error:
                raise DownloadFailed(file["path"], str(error)) from error
            if not cause:
                break
        if cause:
            raise DownloadFailed(file["path"], str(cause))
        self._name(file, part)
        return True

    def _attempt(self, file: dict[str, Any], part: Path) -> str:
        """Fetch what is missing of *part*, and check the whole; what is wrong with it."""
        note = part.with_suffix(".version")
        version = note.read_text() if note.exists() and part.exists() else ""
        start = part.stat().st_size if version else 0
        sha256 = None
        if not version or start < file["bytes"]:
            version, sha256 = self._receive(file["href"], part, start, version)
        else:
            self.tell(start)
        if sha256 is None:
            now, sha256 = self.client.output_digest(self._at(file["href"]))
            if sha256 is None or now != version:
                note.unlink()
                return "it was written to meanwhile"
        if sha256 != sha256_of(part):
            note.unlink()
            return "what came is not what lies there"
        return ""

    def _receive(self, href: str, part: Path, start: int, version: str) -> tuple[str, str | None]:
        """Write what comes into *part*; its version, and its digest if it was sent along."""
        with self.client.output(self._at(href), start=start, version=version) as sent:
            replace_file(part.with_suffix(".version"), sent.version, lasts=False)
            with part.open("r+b" if sent.start else "wb") as file:
                file.seek(sent.start)
                file.truncate()
                self.tell(sent.start)
                for piece in sent.pieces():
                    file.write(piece)
                    self.tell(len(piece))
                file.flush()
                os.fsync(file.fileno())
            return sent.version, sent.sha256

    def _is_here(self, file: dict[str, Any]) -> bool:
        try:
            seen = self._place(file).lstat()
        except (OSError, DownloadFailed):
            return False
        return (seen.st_size, seen.st_mtime_ns) == (file["bytes"], _modified_ns(file))

    def _place(self, file: dict[str, Any]) -> Path:
        """Where *file* goes, below the folder whatever the gateway says."""
        name = name_from(file["href"])
        if name is None or name.partition(b"/")[0] == NOTES.encode():
            raise DownloadFailed(file["path"], "a file here may not be called so")
        place = self.folder / os.fsdecode(name)
        if not place.parent.resolve().is_relative_to(self.folder.resolve()):
            raise DownloadFailed(file["path"], "a link in the folder leads elsewhere")
        return place

    def _name(self, file: dict[str, Any], part: Path) -> None:
        place = self._place(file)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            os.utime(part, ns=(_modified_ns(file),) * 2)
            part.replace(place)
        except OSError as error:
            raise DownloadFailed(file["path"], str(error)) from error
        part.with_suffix(".version").unlink(missing_ok=True)

    def _at(self, href: str) -> OutputPlace:
        return OutputPlace(self.run_id, href, self.attempt)

    @property
    def _notes(self) -> Path:
        return self.folder / NOTES


def _drop_link(part: Path) -> None:
    """Remove *part* where it is another file's second name: what comes would be written there."""
    with suppress(FileNotFoundError):
        seen = part.lstat()
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1:
            part.unlink()


def sha256_of(path: Path) -> str:
    """The digest of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def _modified_ns(file: dict[str, Any]) -> int:
    return int(file["modified"] * 1e9)
