"""A data set that a member has sent to the site."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from headway.errors import InvalidInput
from headway.model.sent_files import Limits, Manifest
from headway.units import MIB, TIB, format_size

DATA = Limits(
    "data",
    chunk_bytes=4 * MIB,  # one is sent in one request
    files=100_000,
    size_bytes=TIB,
    manifest_bytes=32 * MIB,
    instead="pack many files into few, or put several data sets",
)


@dataclass(frozen=True)
class UploadManifest(Manifest):
    """What a data set consists of."""

    limits = DATA
    own: ClassVar[Mapping[str, type]] = {"is_directory": bool}
    entry = ("path", "size_bytes", "chunks")

    is_directory: bool = False

    def check(self) -> None:
        """Raise `InvalidInput` for what a gateway does not take."""
        super().check()
        count = len(self.files)
        if not self.is_directory and (count != 1 or "/" in self.files[0].path):
            raise InvalidInput(DATA.field, f"{count} files", "give one file, or a directory")
        if not self.size_bytes:
            allowed = f"give data of 1 B to {format_size(DATA.size_bytes)}"
            raise InvalidInput(DATA.field, format_size(self.size_bytes), allowed)


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
    """When a run with it was submitted last, or when it was put."""
