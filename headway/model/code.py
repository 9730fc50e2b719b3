"""The folder of code that a run brings along: which files, and of which commit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from headway.errors import InvalidInput
from headway.model.sent_files import HEX, Limits, Manifest
from headway.units import MIB, format_size

FIELD = "workdir"
"""Of a job: what is said of where a file is refused."""
CODE = Limits(
    FIELD,
    chunk_bytes=MIB,
    files=10_000,
    size_bytes=100 * MIB,
    manifest_bytes=4 * MIB,
    instead="leave some out by .gitignore, or bring data as a dataset",
)
MOST_DIFF_BYTES = 64 * 1024
_MOST_COMMIT = 64


@dataclass(frozen=True)
class CodeManifest(Manifest):
    """What a folder of code consists of, and which commit it was made from."""

    limits = CODE
    own: ClassVar[Mapping[str, type]] = {"commit": str, "diff": str}
    entry = ("path", "size_bytes", "executable", "chunks")

    commit: str = ""
    """Of git, in hexadecimal; empty where the folder is in no repository."""
    diff: str = ""
    """What the tracked files differ in from the commit; only its beginning where it is long."""

    def check(self) -> None:
        """Raise `InvalidInput` for what a gateway does not take."""
        if not self.files:
            allowed = "the folder has no file that git tracks or lets through"
            raise InvalidInput(FIELD, "no file", allowed)
        if len(self.commit) > _MOST_COMMIT or not HEX.issuperset(self.commit):
            raise InvalidInput(FIELD, self.commit, "give the commit in lower-case hexadecimal")
        if len(self.diff.encode()) > MOST_DIFF_BYTES:
            allowed = f"give at most {format_size(MOST_DIFF_BYTES)} of it"
            raise InvalidInput(FIELD, "a longer diff", allowed)
        super().check()
