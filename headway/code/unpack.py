"""A folder of code on the node where a run starts.

Chunks that were fetched once stay in a cache that only headway reads, each under its own SHA-256,
which is compared whenever it is used. A run gets a copy of its own, which it may write to.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from headway.durable import UNFINISHED, replace_file
from headway.errors import CacheUnusable, CodeMissing
from headway.model.code import CodeManifest
from headway.model.sent_files import SentFile
from headway.trees import remove
from headway.units import GIB

CACHE_BYTES = 4 * GIB
_AT_ONCE = 32
"""Chunks that are fetched together: at most so many MiB of memory."""

Fetch = Callable[[Collection[str]], Mapping[str, bytes]]
"""Gives the content of chunks by their SHA-256; of those that it has."""


class ChunkCache:
    """The chunks of one team on this node."""

    def __init__(self, folder: Path, code_id: str, fetch: Fetch) -> None:
        """In *folder*, made when it is needed; *fetch* gives what is not there for *code_id*."""
        self._folder = folder
        self._code_id = code_id
        self._fetch = fetch

    def have(self, sha256s: Collection[str]) -> int:
        """Have all of them here; how many bytes had to be fetched.

        Raises:
            CodeMissing: One of them is nowhere.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        left = [each for each in sorted(sha256s) if not (self._folder / each).exists()]
        fetched = 0
        for start in range(0, len(left), _AT_ONCE):
            page = left[start : start + _AT_ONCE]
            found = self._fetch(page)
            for sha256 in page:
                data = found.get(sha256)
                if data is None or hashlib.sha256(data).hexdigest() != sha256:
                    raise CodeMissing(
                        self._code_id, f"its part {sha256[:12]} is not there any more"
                    )
                replace_file(self._folder / sha256, data, lasts=False)
                fetched += len(data)
        return fetched

    def content(self, sha256: str) -> bytes:
        """One chunk. Raises `CodeMissing` where it is nowhere."""
        data = self._read(sha256)
        if data is None:  # removed since, or damaged
            (self._folder / sha256).unlink(missing_ok=True)
            self.have([sha256])
            data = self._read(sha256)
        if data is None:
            raise CodeMissing(self._code_id, f"its part {sha256[:12]} cannot be read here")
        return data

    def _read(self, sha256: str) -> bytes | None:
        path = self._folder / sha256
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() != sha256:
            return None
        os.utime(path)  # the cache lets go of what was unused longest
        return data


def unpack(
    manifest: CodeManifest, cache: ChunkCache, place: Path, user: tuple[int, int] | None
) -> None:
    """Have the files of *manifest* in the new folder *place*, which is *user*'s alone.

    It appears whole, by one rename; where it is there already it stays as it is.

    Raises:
        CodeMissing: A part of it is nowhere.
        CacheUnusable: The disk does not take it.
    """
    if place.exists():
        return
    part = place.with_name(f"{UNFINISHED}{place.name}.{secrets.token_hex(8)}")
    try:
        part.mkdir(mode=0o700)
        for file in manifest.files:
            _write(file, cache, part / file.path)
        if user is not None:
            give(part, user)
        part.rename(place)
    except OSError as error:
        if place.exists():
            return  # another process of this very attempt was faster
        raise CacheUnusable(str(place), error.strerror or str(error)) from error
    finally:
        with suppress(OSError):  # a later start removes what was never finished
            remove(part)


def _write(file: SentFile, cache: ChunkCache, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # "x": on a file system that takes two names for one, the second is refused.
    with path.open("xb") as opened:
        for sha256 in file.chunks:
            opened.write(cache.content(sha256))
        os.fchmod(opened.fileno(), 0o700 if file.executable else 0o600)


def give(top: Path, user: tuple[int, int]) -> None:
    """Make all of it *user*'s; nobody else can have put anything there so far."""
    for folder, _, names in os.walk(top, topdown=False):
        for name in names:
            os.chown(Path(folder) / name, *user, follow_symlinks=False)
        os.chown(folder, *user, follow_symlinks=False)


def trim(folder: Path, most_bytes: int = CACHE_BYTES) -> int:
    """Remove from the caches below *folder* what was unused longest; how many chunks."""
    found = []
    for path in folder.glob("*/*"):
        with suppress(FileNotFoundError):
            seen = path.stat()
            found.append((seen.st_mtime_ns, seen.st_size, path))
    left = sum(size for _, size, _ in found)
    removed = 0
    for _, size, path in sorted(found):
        if left <= most_bytes:
            break
        path.unlink(missing_ok=True)
        left -= size
        removed += 1
    return removed
