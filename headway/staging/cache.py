"""A node's cache of data sets.

`headway.staging.folders` has what lies where, and who may take it.

Data is read as the user whose job names it, and the copy is that user's alone;
the folders above it may be passed, and not listed.
"""

from dataclasses import dataclass, field
from pathlib import Path

from headway.clock import Clock, SystemClock
from headway.model.address import local_path
from headway.model.job_parts import Dataset
from headway.staging.errors import ChecksumMismatch, SourceChanged, StagingTimedOut
from headway.staging.folders import CacheFolders, StagedIndex
from headway.staging.manifest import Manifest
from headway.staging.partial import Meter, Note, Partial, Progress, check_size
from headway.staging.reader import Reader, Reading, UserReader
from headway.staging.source import Source, empty


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


@dataclass
class DataCache:
    """Brings data sets to this node and keeps them for later runs."""

    root: Path
    """The cache's folder, on a local file system."""
    budget_bytes: int
    """All sets together take at most this much."""
    index: StagedIndex
    """Who uses which set."""
    node: str
    """Name of this node in the index."""
    reader: Reader = field(default_factory=UserReader)
    """Opens what a job names, as the user whose copies these are."""
    clock: Clock = field(default_factory=SystemClock)
    """Waits for locks."""
    share_bytes: int | None = None
    """Sets that runs of one user have in hand take at most this much; None for all."""

    def __post_init__(self) -> None:
        self._folders = CacheFolders(
            root=self.root,
            budget_bytes=self.budget_bytes,
            share_bytes=self.budget_bytes if self.share_bytes is None else self.share_bytes,
            index=self.index,
            node=self.node,
            clock=self.clock,
        )

    def stage(
        self, dataset: Dataset, run_id: str, *, progress: Progress, limit_s: float | None = None
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
        end_s = None if limit_s is None else self.clock.monotonic_s() + limit_s

        def check() -> None:
            if end_s is not None and self.clock.monotonic_s() >= end_s:
                raise StagingTimedOut(dataset.uri, limit_s or 0.0)

        def told(done_bytes: int, total_bytes: int | None) -> None:
            check()
            progress(done_bytes, total_bytes)

        for last in (False, True):
            try:
                with self.reader.reading(dataset.uri, check) as reading:
                    return self._stage_once(dataset, run_id, told, reading)
            except SourceChanged:
                if last:
                    raise
        raise AssertionError("unreachable")

    @property
    def _owner(self) -> int | None:
        return None if self.reader.user is None else self.reader.user[0]

    def release(self, run_id: str) -> None:
        """*run_id* uses no data set of this node any more. Idempotent."""
        self.index.release(self.node, run_id)

    def sweep(self) -> int:
        """Remove what dead fetches and evictions left; how many folders that were.

        What belongs to a living process is left alone. Called when the
        node's worker starts, and by its janitor.
        """
        return self._folders.sweep()

    # --- one attempt ---

    def _stage_once(
        self, dataset: Dataset, run_id: str, progress: Progress, reading: Reading
    ) -> StagedDataset:
        source = reading.inspect()
        if source.size_bytes == 0:
            raise empty(dataset.uri)
        if source.size_bytes is not None:
            check_size(dataset, source.size_bytes)
        key = source.key(dataset.sha256, self.reader.user)

        def waiting(note: Note) -> None:
            progress(note.done_bytes, note.total_bytes)

        folders = self._folders
        with folders.writing(dataset.uri, source.size_bytes or 0), folders.locked(key, waiting):
            manifest = folders.sound(key)
            from_cache = manifest is not None
            if manifest is None:
                manifest = self._fetch(dataset, source, key, progress, reading, run_id=run_id)
            else:  # again, in case whoever fetched it died before it was recorded
                if local_path(dataset.uri) is None:
                    # It may be listed, and not be read by who wants it.
                    reading.probe(next(each for each in source.files if each.size_bytes != 0))
                folders.record(key, manifest)
                folders.take(key, manifest, run_id, self._owner)
        progress(manifest.size_bytes, manifest.size_bytes)
        path = manifest.path(folders.sets / key)
        return StagedDataset(path, manifest.size_bytes, manifest.sha256, from_cache)

    def _fetch(
        self,
        dataset: Dataset,
        source: Source,
        key: str,
        progress: Progress,
        reading: Reading,
        *,
        run_id: str,
    ) -> Manifest:
        self._folders.remove_partials(key)
        partial = Partial.create(self._folders.tmp, key, self._owner)
        try:
            meter = Meter(
                dataset=dataset,
                total_bytes=source.size_bytes,
                reserve=lambda note: self._folders.make_room(dataset.uri, partial, note),
                write_note=partial.write_note,
                progress=progress,
                clock=self.clock,
            )
            hashes = partial.copy(source, reading.pieces, meter.count)
            if meter.done_bytes == 0:
                raise empty(dataset.uri)
            if reading.inspect().identity != source.identity:
                raise SourceChanged(dataset.uri, "its size, time or version is another now")
            manifest = partial.seal(source, hashes, self.reader.user)
            if dataset.sha256 not in {None, manifest.sha256}:
                raise ChecksumMismatch(dataset.uri, str(dataset.sha256), manifest.sha256)
            # Recorded and taken first: its bytes count without a gap.
            self._folders.record(key, manifest)
            self.index.acquire(self.node, key, run_id)
            partial.move_to(self._folders.sets / key)
            return manifest
        except BaseException:
            partial.remove()
            raise
