"""Counts the bytes of one fetch, and stops it where it must not go on."""

from collections.abc import Callable
from dataclasses import dataclass

from headway.clock import Clock
from headway.errors import CacheFull, InvalidInput, SourceChanged
from headway.model.job_fields import write_size
from headway.model.job_parts import Dataset
from headway.staging.partial import Note
from headway.units import MIB, format_size

Progress = Callable[[int, int | None], None]
"""Is told bytes done and, where known, bytes in all."""

_STEP_BYTES = 16 * MIB
"""A source that does not tell its size gets room in steps of this size."""
_NOTE_EVERY_S = 0.5


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
        """The next piece has *piece_bytes*; fewer than none of what is to be written anew."""
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
