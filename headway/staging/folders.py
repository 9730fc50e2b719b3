"""The folders of a node's cache: which sets lie there, which are fetched, and room for more.

    sets/KEY/         manifest.json, data/…      complete, checked, read-only
    tmp/KEY.TOKEN/    data/…                     being fetched, or left by a fetch that died
    locks/KEY         held by whoever fetches, takes or evicts KEY

A set appears in `sets` by one rename, after its manifest was written; so a
fetch that dies at any moment leaves nothing there. Who uses a set is kept in
the index (the ledger); it is asked and told only under the key's lock.
"""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headway.clock import Clock
from headway.durable import lock_file
from headway.errors import CacheUnusable
from headway.home import passable
from headway.model.staged import StagedSet
from headway.staging.budget import CacheSpace, beyond_share, victims
from headway.staging.errors import CacheFull
from headway.staging.manifest import DATA, Manifest
from headway.staging.partial import Note, Partial


class StagedIndex(Protocol):
    """Staged data sets of every node, and the runs that use them: the ledger implements it.

    The fake is `tests.ports.staging.MemoryIndex`.

    The cache calls `record`, `acquire` and `remove` for a key only while it
    holds that key's lock on the node, so the index needs no lock of its own
    beyond one transaction a call.
    """

    def record(self, node: str, key: str, uri: str, size_bytes: int, sha256: str) -> None:
        """The set lies on *node* now. Recorded before: updated; its runs stay."""

    def acquire(self, node: str, key: str, run_id: str) -> None:
        """*run_id* uses the recorded set, which becomes the most recently used. Idempotent."""

    def release(self, node: str, run_id: str) -> None:
        """*run_id* uses nothing on *node* any more. Idempotent."""

    def remove(self, node: str, key: str) -> bool:
        """Forget the set unless a run uses it; False if one does. Unknown: True."""

    def list(self, node: str) -> list[StagedSet]:
        """Every set recorded on *node*, least recently used first."""


log = logging.getLogger(__name__)

_BUDGET_LOCK = "budget"
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class FileLocks:
    """Exclusive locks by name, one file each (flock), also between threads.

    Args:
        folder: Where the lock files lie; on a local file system.
        clock: Waits between two attempts.
    """

    folder: Path
    clock: Clock

    @contextmanager
    def held(self, name: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock, however long it takes; *waiting* is called meanwhile and may raise."""
        while (descriptor := lock_file(self.folder / name)) is None:
            waiting()
            self.clock.sleep(_POLL_S)
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def held_if_free(self, name: str) -> Iterator[bool]:
        """Hold the lock if nobody has it; the block is told whether it does."""
        descriptor = lock_file(self.folder / name)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def forget(self, name: str) -> None:
        """Remove the lock's file. Only while holding the lock."""
        (self.folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Every lock that has a file."""
        return sorted(path.name for path in self.folder.iterdir())


@dataclass(kw_only=True)
class CacheFolders:
    """What lies in one node's cache."""

    root: Path
    """The cache's folder, on a local file system."""
    budget_bytes: int
    """All sets together take at most this much."""
    share_bytes: int
    """Those that runs of one user have in hand take at most this much: what is in use goes for
    nobody, so that user would keep all others from starting."""
    index: StagedIndex
    """Who uses which set."""
    node: str
    """Name of this node in the index."""
    clock: Clock
    """Waits for locks."""

    def __post_init__(self) -> None:
        root = self.root
        self.sets, self.tmp, locks = root / "sets", root / "tmp", root / "locks"
        with self.writing("", 0):
            for folder in (root, self.sets, self.tmp, locks):
                folder.mkdir(parents=True, exist_ok=True)
            for passed in (root, self.sets):
                passed.chmod(passable())
            for own in (self.tmp, locks):
                own.chmod(0o700)
        self._locks = FileLocks(locks, self.clock)

    def locked(self, key: str, waiting: Callable[[Note], None]) -> AbstractContextManager[None]:
        """Hold the lock of *key*; *waiting* is told meanwhile how far the one who holds it is."""
        return self._locks.held(key, lambda: waiting(self._note(key)))

    def sound(self, key: str) -> Manifest | None:
        """The manifest of the set that lies there; what is damaged is removed."""
        folder = self.sets / key
        if not folder.exists():
            return None
        manifest = Manifest.read(folder)
        if manifest is not None and manifest.holds(folder):
            return manifest
        self._discard(key)
        return None

    def sweep(self) -> int:
        """Remove what dead fetches and evictions left; how many folders that were."""
        removed = 0
        with self.writing("", 0):
            removed += self._remove_dead()
            known = self._known()
            there = {folder.name for folder in self.sets.iterdir()}
            for key in sorted(there - known):
                with _trying(self.sets / key):
                    removed += self._remove_unknown(key)
            for key in sorted(known - there):
                self._forget_missing(key)
            for name in self._locks.names():
                with self._locks.held_if_free(name) as free:
                    if free and not (self.sets / name).exists():
                        self._locks.forget(name)
        return removed

    def make_room(self, uri: str, partial: Partial, note: Note) -> None:
        """Reserve what *note* says for *partial*, evicting unused sets. Raises `CacheFull`."""
        passed_over = {partial.key}
        with self._locks.held(_BUDGET_LOCK):
            self._check_share(uri, partial.key, note.reserved_bytes, partial.owner)
            while True:
                unused = [
                    each
                    for each in self.index.list(self.node)
                    if not each.run_ids and each.key not in passed_over
                ]
                to_write = note.reserved_bytes - note.done_bytes
                chosen = victims(self._room(partial), unused, note.reserved_bytes, to_write)
                if isinstance(chosen, int):
                    all_bytes = chosen + self._in_hand_bytes()
                    passes = note.reserved_bytes <= min(all_bytes, self.share_bytes)
                    raise CacheFull(uri, note.reserved_bytes, chosen, passes=passes)
                kept = {each.key for each in chosen if not self._evict(each.key)}
                if not kept:
                    break
                # Somebody takes these this moment. Waiting for them, with the
                # budget in hand, could be waiting for each other.
                passed_over |= kept
            partial.write_note(note)

    def take(self, key: str, manifest: Manifest, run_id: str, owner: int | None) -> None:
        """Have *run_id* of *owner* use a set that lies there. Raises `CacheFull`."""
        with self._locks.held(_BUDGET_LOCK):
            self._check_share(manifest.uri, key, manifest.size_bytes, owner)
            self.index.acquire(self.node, key, run_id)

    def _check_share(self, uri: str, key: str, size_bytes: int, owner: int | None) -> None:
        if owner is None:  # one user for all: nobody is told from another
            return
        held = self._held_by(owner)
        if beyond_share(held, key, size_bytes, self.share_bytes):
            left_bytes = max(0, self.share_bytes - sum(held.values()))
            passes = size_bytes <= self.share_bytes
            raise CacheFull(uri, size_bytes, left_bytes, passes=passes, whose="your team")

    def _held_by(self, owner: int) -> dict[str, int]:
        """Sizes of the sets that runs of *owner* use or fetch."""
        notes = {each.key: each.note() for each in Partial.found_in(self.tmp)}
        held = {key: note.reserved_bytes for key, note in notes.items() if note.owner == owner}
        for each in self._in_use():
            with suppress(FileNotFoundError):
                if (self.sets / each.key / DATA).stat().st_uid == owner:
                    held[each.key] = each.size_bytes
        return held

    def _in_use(self) -> list[StagedSet]:
        return [each for each in self.index.list(self.node) if each.run_ids]

    def _in_hand_bytes(self) -> int:
        """What does not give way now, and will: sets in use, and those that are fetched."""
        notes = [each.note() for each in Partial.found_in(self.tmp)]
        fetched_bytes = sum(note.reserved_bytes for note in notes)
        return fetched_bytes + sum(each.size_bytes for each in self._in_use())

    def _room(self, partial: Partial) -> CacheSpace:
        self._remove_dead()  # what nobody fetches any more must not hold room
        notes = [each.note() for each in Partial.found_in(self.tmp) if each.key != partial.key]
        sets = [each for each in self.index.list(self.node) if each.key != partial.key]
        unwritten = sum(max(0, note.reserved_bytes - note.done_bytes) for note in notes)
        return CacheSpace(
            budget_bytes=self.budget_bytes,
            used_bytes=sum(each.size_bytes for each in sets),
            reserved_bytes=sum(note.reserved_bytes for note in notes),
            disk_free_bytes=shutil.disk_usage(self.root).free - unwritten,
        )

    def _evict(self, key: str) -> bool:
        with self._locks.held_if_free(key) as free:
            if not free or not self.index.remove(self.node, key):
                return False
            self._discard(key)
            return True

    def _remove_unknown(self, key: str) -> bool:
        """Remove a set that the index does not know, unless somebody is about to record it."""
        with self._locks.held_if_free(key) as free:
            if not free or key in self._known():
                return False
            self._discard(key)
            return True

    def _forget_missing(self, key: str) -> None:
        """Tell the index of a set that is not there: its fetch died before its last step."""
        with self._locks.held_if_free(key) as free:
            if free and not (self.sets / key).exists():
                self.index.remove(self.node, key)

    def _known(self) -> set[str]:
        return {each.key for each in self.index.list(self.node)}

    def _discard(self, key: str) -> None:
        """Take the set out of `sets` at once, then remove it."""
        folder = self.sets / key
        if folder.exists():
            partial = Partial(self.tmp / f"{key}.discarded")
            if partial.folder.exists():
                partial.remove()
            folder.rename(partial.folder)
            partial.remove()

    def record(self, key: str, manifest: Manifest) -> None:
        """Tell the index that the set is complete."""
        self.index.record(self.node, key, manifest.uri, manifest.size_bytes, manifest.sha256)

    def remove_partials(self, key: str) -> int:
        """Remove what fetches of *key* left. Only while holding its lock."""
        left = [each for each in Partial.found_in(self.tmp) if each.key == key]
        for each in left:
            each.remove()
        return len(left)

    def _remove_dead(self) -> int:
        """Remove what fetches left whose lock nobody holds."""
        removed = 0
        for key in {each.key for each in Partial.found_in(self.tmp)}:
            with _trying(self.tmp / key), self._locks.held_if_free(key) as free:
                removed += self.remove_partials(key) if free else 0
        return removed

    def _note(self, key: str) -> Note:
        """How far the fetch of *key* is."""
        notes = [each.note() for each in Partial.found_in(self.tmp) if each.key == key]
        return max(notes, key=lambda note: note.done_bytes, default=Note())

    @contextmanager
    def writing(self, uri: str, needed_bytes: int) -> Iterator[None]:
        """Errors of the cache's own disk, made ours."""
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                free = shutil.disk_usage(self.root).free
                raise CacheFull(uri, needed_bytes, free) from error
            raise CacheUnusable(str(self.root), error.strerror or str(error)) from error


@contextmanager
def _trying(folder: Path) -> Iterator[None]:
    """One folder that cannot be removed keeps no other one, and no fetch."""
    try:
        yield
    except OSError as error:
        log.warning("%s of the cache stays: %s; tried again with the next sweep", folder, error)
