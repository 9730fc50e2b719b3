"""A node's cache of data sets.

    sets/KEY/         manifest.json, data/…      complete, checked, read-only
    tmp/KEY.TOKEN/    data/…                     being fetched, or left by a fetch that died
    locks/KEY         held by whoever fetches, takes or evicts KEY

A set appears in `sets` by one rename, after its manifest was written; so a
fetch that dies at any moment leaves nothing there. Who uses a set is kept in
the index (the ledger); it is asked and told only under the key's lock.

Data is read as the user whose job names it, and the copy is that user's alone;
the folders above it may be passed, and not listed.
"""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headway.clock import Clock, SystemClock
from headway.errors import (
    CacheFull,
    CacheUnusable,
    ChecksumMismatch,
    SourceChanged,
    StagingTimedOut,
)
from headway.home import passable
from headway.model.job import Dataset
from headway.staging.budget import Room, victims
from headway.staging.index import StagedIndex
from headway.staging.locks import FileLocks
from headway.staging.manifest import Manifest
from headway.staging.meter import Meter, Progress, check_size
from headway.staging.partial import Note, Partial
from headway.staging.reader import Reader, Reading, UserReader
from headway.staging.source import Source, empty

_BUDGET_LOCK = "budget"


@dataclass(frozen=True, slots=True)
class StagedDataset:
    """A data set on this node, ready to be mounted."""

    path: Path
    """The file, or the directory. Read-only."""
    size_bytes: int
    sha256: str
    """Of a file; of a directory as `headway.staging.manifest.digest` says."""
    from_cache: bool
    """It lay there already: nothing was copied."""


class DataCache:
    """Brings data sets to this node and keeps them for later runs.

    Args:
        root: The cache's folder, on a local file system.
        budget_bytes: All sets together take at most this much.
        index: Who uses which set.
        reader: Opens what a job names, as the user whose copies these are.
        node: Name of this node in the index.
        clock: Waits for locks.
    """

    def __init__(
        self,
        root: Path,
        budget_bytes: int,
        index: StagedIndex,
        *,
        node: str,
        reader: Reader | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._root = root
        self._budget_bytes = budget_bytes
        self._index = index
        self._node = node
        self._reader = reader or UserReader()
        self._clock = clock or SystemClock()
        self._sets, self._tmp = root / "sets", root / "tmp"
        locks = root / "locks"
        with self._writing("", 0):
            for folder in (root, self._sets, self._tmp, locks):
                folder.mkdir(parents=True, exist_ok=True)
            for passed in (root, self._sets):
                passed.chmod(passable())
            for own in (self._tmp, locks):
                own.chmod(0o700)
        self._locks = FileLocks(locks, self._clock)

    def stage(
        self,
        dataset: Dataset,
        run_id: str,
        *,
        progress: Progress,
        limit_s: float | None = None,
    ) -> StagedDataset:
        """Have *dataset* on this node, used by *run_id* until `release`.

        Where others fetch the same data, waits for them instead of fetching.
        *progress* is called often, and while waiting; whatever it raises, as
        what a signal raises at any moment, ends this and leaves nothing behind.
        Nothing takes longer than *limit_s*.

        Raises:
            StagingTimedOut: The data was not here within *limit_s*.
            InvalidInput: The address cannot be one, nothing is in it, or it
                is far larger than `dataset.size` says.
            SourceMissing: Nothing is there, or it may not be read.
            SourceUnreachable: Its storage does not answer.
            SourceChanged: It changed during two copies in a row.
            ChecksumMismatch: It is not what `dataset.sha256` says.
            CacheFull: Even without all unused sets there is no room.
            CacheUnusable: The cache's disk has an error.
        """
        end_s = None if limit_s is None else self._clock.monotonic_s() + limit_s

        def check() -> None:
            if end_s is not None and self._clock.monotonic_s() >= end_s:
                raise StagingTimedOut(dataset.uri, limit_s or 0.0)

        def told(done_bytes: int, total_bytes: int | None) -> None:
            check()
            progress(done_bytes, total_bytes)

        for last in (False, True):
            try:
                with self._reader.reading(dataset.uri, check) as reading:
                    return self._stage_once(dataset, run_id, told, reading)
            except SourceChanged:
                if last:
                    raise
        raise AssertionError("unreachable")

    def release(self, run_id: str) -> None:
        """*run_id* uses no data set of this node any more. Idempotent."""
        self._index.release(self._node, run_id)

    def sweep(self) -> int:
        """Remove what dead fetches and evictions left; how many folders that were.

        What belongs to a living process is left alone. Called when the
        node's worker starts, and by its janitor.
        """
        removed = 0
        with self._writing("", 0):
            removed += self._remove_dead()
            known = {each.key for each in self._index.list(self._node)}
            for folder in sorted(self._sets.iterdir()):
                if folder.name not in known:
                    removed += self._remove_unknown(folder.name)
            for name in self._locks.names():
                with self._locks.held_if_free(name) as free:
                    if free and not (self._sets / name).exists():
                        self._locks.forget(name)
        return removed

    # --- one attempt ---

    def _stage_once(
        self, dataset: Dataset, run_id: str, progress: Progress, reading: Reading
    ) -> StagedDataset:
        source = reading.look()
        key = source.key(dataset.sha256, self._reader.user)
        if source.size_bytes == 0:
            raise empty(dataset.uri)
        if source.size_bytes is not None:
            check_size(dataset, source.size_bytes)

        def waiting() -> None:
            note = self._note(key)
            progress(note.done_bytes, note.total_bytes)

        with self._writing(dataset.uri, source.size_bytes or 0), self._locks.held(key, waiting):
            folder = self._sets / key
            manifest = self._sound(key)
            from_cache = manifest is not None
            if manifest is None:
                manifest = self._fetch(dataset, source, key, progress, reading)
            else:  # again, in case whoever fetched it died before it was recorded
                self._record(key, manifest)
            self._index.acquire(self._node, key, run_id)
        progress(manifest.size_bytes, manifest.size_bytes)
        return StagedDataset(
            manifest.path(folder), manifest.size_bytes, manifest.sha256, from_cache
        )

    def _sound(self, key: str) -> Manifest | None:
        """The manifest of the set that lies there; what is damaged is removed."""
        folder = self._sets / key
        if not folder.exists():
            return None
        manifest = Manifest.read(folder)
        if manifest is not None and manifest.holds(folder):
            return manifest
        self._discard(key)
        return None

    def _fetch(
        self,
        dataset: Dataset,
        source: Source,
        key: str,
        progress: Progress,
        reading: Reading,
    ) -> Manifest:
        self._remove_partials(key)
        partial = Partial.create(self._tmp, key)
        try:
            meter = Meter(
                dataset,
                source.size_bytes,
                reserve=lambda note: self._make_room(dataset.uri, partial, note),
                write_note=partial.write_note,
                progress=progress,
                clock=self._clock,
            )
            sha256 = partial.copy(source, reading.pieces, meter.count)
            if meter.done_bytes == 0:
                raise empty(dataset.uri)
            if reading.look().identity != source.identity:
                raise SourceChanged(dataset.uri, "its size, time or version is another now")
            if dataset.sha256 not in {None, sha256}:
                raise ChecksumMismatch(dataset.uri, str(dataset.sha256), sha256)
            manifest = partial.seal(source, sha256, self._reader.user)
            # Recorded first: its bytes count against the budget without a gap.
            self._record(key, manifest)
            partial.move_to(self._sets / key)
            return manifest
        except BaseException:
            partial.remove()
            raise

    # --- room ---

    def _make_room(self, uri: str, partial: Partial, note: Note) -> None:
        """Reserve what *note* says for *partial*, evicting unused sets. Raises `CacheFull`."""
        passed_over = {partial.key}
        with self._locks.held(_BUDGET_LOCK):
            while True:
                unused = [
                    each
                    for each in self._index.evictable(self._node)
                    if each.key not in passed_over
                ]
                to_write = note.reserved_bytes - note.done_bytes
                chosen = victims(self._room(partial), unused, note.reserved_bytes, to_write)
                if isinstance(chosen, int):
                    raise CacheFull(uri, note.reserved_bytes, chosen)
                kept = {each.key for each in chosen if not self._evict(each.key)}
                if not kept:
                    break
                # Somebody takes these this moment. Waiting for them, with the
                # budget in hand, could be waiting for each other.
                passed_over |= kept
            partial.write_note(note)

    def _room(self, partial: Partial) -> Room:
        self._remove_dead()  # what nobody fetches any more must not hold room
        notes = [each.note() for each in Partial.found_in(self._tmp) if each.key != partial.key]
        sets = [each for each in self._index.list(self._node) if each.key != partial.key]
        unwritten = sum(max(0, note.reserved_bytes - note.done_bytes) for note in notes)
        return Room(
            budget_bytes=self._budget_bytes,
            used_bytes=sum(each.size_bytes for each in sets),
            reserved_bytes=sum(note.reserved_bytes for note in notes),
            disk_free_bytes=shutil.disk_usage(self._root).free - unwritten,
        )

    def _evict(self, key: str) -> bool:
        with self._locks.held_if_free(key) as free:
            if not free or not self._index.remove(self._node, key):
                return False
            self._discard(key)
            return True

    def _remove_unknown(self, key: str) -> bool:
        """Remove a set that the index does not know, unless somebody is about to record it."""
        with self._locks.held_if_free(key) as free:
            known = {each.key for each in self._index.list(self._node)}
            if not free or key in known:
                return False
            self._discard(key)
            return True

    def _discard(self, key: str) -> None:
        """Take the set out of `sets` at once, then remove it."""
        folder = self._sets / key
        if folder.exists():
            partial = Partial(self._tmp / f"{key}.discarded")
            if partial.folder.exists():
                partial.remove()
            folder.rename(partial.folder)
            partial.remove()

    def _record(self, key: str, manifest: Manifest) -> None:
        self._index.record(self._node, key, manifest.uri, manifest.size_bytes, manifest.sha256)

    def _remove_partials(self, key: str) -> int:
        """Remove what fetches of *key* left. Only while holding its lock."""
        left = [each for each in Partial.found_in(self._tmp) if each.key == key]
        for each in left:
            each.remove()
        return len(left)

    def _remove_dead(self) -> int:
        """Remove what fetches left whose lock nobody holds."""
        removed = 0
        for key in {each.key for each in Partial.found_in(self._tmp)}:
            with self._locks.held_if_free(key) as free:
                removed += self._remove_partials(key) if free else 0
        return removed

    def _note(self, key: str) -> Note:
        """How far the fetch of *key* is."""
        notes = [each.note() for each in Partial.found_in(self._tmp) if each.key == key]
        return max(notes, key=lambda note: note.done_bytes, default=Note())

    @contextmanager
    def _writing(self, uri: str, needed_bytes: int) -> Iterator[None]:
        """Errors of the cache's own disk, made ours."""
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                free = shutil.disk_usage(self._root).free
                raise CacheFull(uri, needed_bytes, free) from error
            raise CacheUnusable(str(self._root), error.strerror or str(error)) from error
