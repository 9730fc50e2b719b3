"""The content of the data sets that members have put, on the disk of the gateway's machine.

uploads/TEAM/ab/abcd…        a chunk under its SHA-256; its time says when it was last asked for
"""

import hashlib
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from headway.durable import replace_file
from headway.errors import InvalidInput
from headway.units import DAY_S, GIB, KIB, format_size

LEAST_FREE_BYTES = GIB
"""So much of the disk no upload takes: the site itself needs some."""
FILE_BYTES = 16 * KIB
"""What a file counts beside its content: it takes one of the disk's inodes, however small it is."""
LENT_S = DAY_S
"""So long a chunk stays that no data set has: somebody may be sending one that has it."""


class UploadChunks:
    """All chunks in one home. Several threads may ask at once."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        """In *root*, made when it is needed; a team takes *limit_bytes* at most."""
        self._root = root
        self._limit_bytes = limit_bytes
        self._held: dict[str, int] = {}
        """By team, what its chunks take; more than is true where another process removed some."""
        self._one_writes: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """By team: none waits for the disk behind another one."""

    def put(self, team: str, data: bytes) -> bool:
        """Keep *data* for good under the SHA-256 that it has; whether it is new.

        Raises:
            InvalidInput: With it the team would have more than it may, or the disk is full.
        """
        path = self._path(team, hashlib.sha256(data).hexdigest())
        with self._one_writes[team]:
            if _touch(path):
                return False
            self.check_room(team, [len(data)])
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, data)
            self._held[team] = self._held.get(team, 0) + _counted([len(data)])
        return True

    def check_room(self, team: str, sizes: Collection[int]) -> None:
        """Raise `InvalidInput` unless *team* may put so many more chunks of these *sizes*."""
        more_bytes = _counted(sizes)
        if self._held.get(team, self._limit_bytes) + more_bytes > self._limit_bytes:
            self._held[team] = _counted(each.st_size for _, each in self._of(team))
        held = self._held[team]
        if held + more_bytes > self._limit_bytes:
            allowed = (
                f"data of team {team} may take {format_size(self._limit_bytes)}, and takes "
                f"{format_size(held)}, counting {format_size(FILE_BYTES)} for each part beside its "
                "content: remove some by `headway data rm`, or pack small files"
            )
            raise InvalidInput("data", format_size(more_bytes), allowed)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(self._root).free
        if free - more_bytes < LEAST_FREE_BYTES:
            allowed = f"the gateway's disk has {format_size(free)} free: ask its operator for more"
            raise InvalidInput("data", format_size(more_bytes), allowed)

    def missing(self, team: str, chunks: Mapping[str, int], *, lend: bool) -> list[str]:
        """Those of *chunks*, by SHA-256 with their sizes, that the team has not.

        With *lend* the others stay for a while.

        Raises:
            InvalidInput: A chunk is of another size than is said.
        """
        found = []
        for sha256, size in sorted(chunks.items()):
            path = self._path(team, sha256)
            if not (_touch(path) if lend else path.exists()):
                found.append(sha256)
            elif path.stat().st_size != size:
                allowed = f"chunk {sha256} has {path.stat().st_size} B, not {size}"
                raise InvalidInput("data", sha256, allowed)
        return found

    def read(self, team: str, sha256: str) -> bytes | None:
        """A chunk of the team's; None where it is not there, or is not that any more."""
        path = self._path(team, sha256)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
        path.unlink(missing_ok=True)  # whoever puts it again is told that it is missing
        return None

    def remove(self, team: str, sha256s: Collection[str]) -> int:
        """Remove chunks that no data set of the team has any more; how many bytes that were."""
        freed = 0
        for sha256 in sha256s:
            path = self._path(team, sha256)
            if path.exists():
                freed += path.stat().st_size
                path.unlink(missing_ok=True)
        self._held.pop(team, None)
        return freed

    def teams(self) -> list[str]:
        """Those that have put any."""
        return sorted(each.name for each in self._root.glob("*")) if self._root.exists() else []

    def unasked(self, team: str, now: datetime) -> set[str]:
        """Chunks that nobody has asked for lately: no upload under way counts on them."""
        before = now.timestamp() - LENT_S
        return {name for name, each in self._of(team) if each.st_mtime < before}

    def _of(self, team: str) -> Iterator[tuple[str, os.stat_result]]:
        for path in (self._root / team).glob("??/*"):
            with suppress(FileNotFoundError):  # it was just finished, or removed
                yield path.name, path.stat()

    def _path(self, team: str, sha256: str) -> Path:
        return self._root / team / sha256[:2] / sha256


def _counted(sizes: Iterable[int]) -> int:
    return sum(size + FILE_BYTES for size in sizes)


def _touch(path: Path) -> bool:
    """Whether *path* is there; it counts as asked for now."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True
