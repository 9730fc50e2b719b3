"""Progress that a program writes into files, read while it runs.

A program that logs to TensorBoard, MLflow, W&B or a table says there what it did, by name, where
its log has to be guessed at. The files are the program's, and may be hostile: they are listed and
opened as outputs are, read in pieces and for a moment at a time, and what cannot be read is left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TypeVar

from headway.clock import Clock
from headway.model.progress import ProgressPoint
from headway.model.run_file import OutputFile
from headway.progress.file_kinds import FileKind, kind_of
from headway.progress.metrics import MAX_METRICS
from headway.progress.records import PIECE_BYTES, Record, RecordReader
from headway.progress.seen import MAX_COUNT
from headway.run.outputs import OpenOutput, list_outputs, opened_output

_READ_EVERY_S = 1.0
_FIND_EVERY_S = 5.0
_FINDING_FRAC = 0.02
"""At most so much of the time goes by looking for files."""
_TURN_S, _LAST_TURN_S = 0.1, 2.0
"""Time for what is new at one reading, and for what is left at the end."""
_MOST_SOURCES = 64
_MOST_WHOLE_BYTES = 8 << 20
_HEAD_BYTES = 4096
_UNREADABLE = "unreadable"
_SILENT_S, _SILENT_GAPS = 30.0, 3.0
"""What leads is left for another one after so long, and so many times its longest gap."""

_Number = TypeVar("_Number", int, float)


@dataclass(slots=True)
class _Source:
    """One series: a file, or those in which a trainer writes the same one again and again."""

    place: tuple[Path, str]
    name: bytes
    kind: FileKind
    reader: RecordReader
    modified_ns: int = 0
    version: str = ""
    """As it was when all of it was read."""
    offset: int = 0
    head: bytes = b""
    """How it began when it was read last."""
    taken: int = 0
    """Records that were read of it."""
    skip: int = 0
    """Of a file that was written anew, those to come that were taken before."""
    point: ProgressPoint | None = None
    """How far it says that the run is; None before it says it."""
    states_total: bool = False
    gap_s: float = 0.0
    """The longest time between two advances."""

    @property
    def rank(self) -> tuple[bool, bool]:
        """How much it knows: how many iterations there will be, how many there were."""
        return self.states_total, self.point is not None and self.point.iteration is not None

    def begin_anew(self) -> None:
        """Its file is another one, or begins in another way: a table that got a new column."""
        self.offset, self.skip, self.taken = 0, self.skip + self.taken, 0
        self.reader = self.kind.new_reader()

    def advance(
        self, record: Record, t_s: float, epochs: int | None, iterations: int | None
    ) -> ProgressPoint:
        """Where the run is by *record*; never behind where it was by the same series."""
        before = self.point or ProgressPoint(t_s)
        iteration = _later(before.iteration, record.iteration)
        epoch = _later(before.epoch, record.epoch_done)
        total = record.total or before.total
        if epochs and iteration is None:
            total = epochs
        elif epochs and record.total is None and record.epoch_done and record.iteration:
            in_all = record.iteration * epochs / record.epoch_done
            total = round(in_all) if in_all <= MAX_COUNT else None
        elif total is None:
            total = iterations
        if total is not None:
            total = max(total, iteration or 1)
        self.states_total |= record.total is not None
        now = ProgressPoint(t_s, iteration, epoch, total)
        if _place(now) > _place(before):
            self.gap_s = max(self.gap_s, t_s - before.t_s)
        elif self.point is not None:
            now = now._replace(t_s=before.t_s)
        if iteration is not None or epoch is not None:
            self.point = now
        return now


@dataclass(slots=True)
class WrittenProgress:
    """What the files of one attempt have said so far."""

    places: Sequence[tuple[Path, str]]
    """Folders in which its program writes: what each is in, and its name there."""
    clock: Clock
    started_at: datetime
    """When its container started: what was written before is nothing of its own."""
    epochs: int | None = None
    """So many it trains for; None where the job does not say."""
    iterations: int | None = None
    """The same of iterations."""
    _sources: dict[tuple[Path, str, str], _Source] = field(default_factory=dict)
    """The one that is read next comes first."""
    counting: _Source | None = None
    """The file that says how far the run is; None where none does."""
    _find_at_s: float = 0.0
    _read_at_s: float = 0.0

    @property
    def point(self) -> ProgressPoint | None:
        """How far the run is; None where no file says."""
        return None if self.counting is None else self.counting.point

    @property
    def states_total(self) -> bool:
        """Whether a file says itself how many iterations there will be."""
        return self.counting is not None and self.counting.states_total

    def read(self, elapsed_s: float, *, last: bool = False) -> list[ProgressPoint]:
        """What is new, for a moment; the metrics of all files, in the position of one.

        Args:
            elapsed_s: Since the container's start.
            last: Nothing more comes.
        """
        if elapsed_s < self._read_at_s and not last:
            return []
        self._read_at_s = elapsed_s + _READ_EVERY_S
        began_s = self.clock.monotonic_s()
        if elapsed_s >= self._find_at_s or last:
            self._find()
            took_s = self.clock.monotonic_s() - began_s
            self._find_at_s = elapsed_s + max(_FIND_EVERY_S, took_s / _FINDING_FRAC)
        until_s = self.clock.monotonic_s() + (_LAST_TURN_S if last else _TURN_S)
        found: list[tuple[_Source, ProgressPoint]] = []
        for key in list(self._sources):
            source = self._sources.pop(key)
            self._sources[key] = source
            records = self._new_records(source, until_s)
            found += ((source, each) for each in self._points(source, records, elapsed_s))
            if self.clock.monotonic_s() >= until_s:
                break
        self._choose(elapsed_s)
        return self._in_one_position(found)

    def _find(self) -> None:
        """Look for files that were written since the container started."""
        since_ns = int(self.started_at.timestamp() * 1e9)
        for parent, name in self.places:
            try:
                listed = list_outputs(parent, name)
            except OSError:
                continue
            new = [each for each in listed.files if each.modified_ns >= since_ns] if listed else []
            for file in sorted(new, key=lambda each: each.modified_ns):
                self._take_file((parent, name), file)

    def _take_file(self, place: tuple[Path, str], file: OutputFile) -> None:
        if (kind := kind_of(file.path)) is None:
            return
        source = self._sources.get((*place, kind.series))
        if source is None and len(self._sources) < _MOST_SOURCES:
            source = _Source(place, file.name, kind, kind.new_reader())
            self._sources[*place, kind.series] = source
        if source is not None and file.modified_ns > source.modified_ns:
            source.name, source.modified_ns = file.name, file.modified_ns

    def _new_records(self, source: _Source, until_s: float) -> Iterator[Record]:
        """The records that were not there yet. A file that has not changed is not read."""
        if source.version == _UNREADABLE:
            return
        below = source.place[1]
        try:
            with opened_output(source.place[0], source.name, below) as opened:
                if opened.file.version != source.version:
                    yield from self._read(source, opened, until_s)
        except OSError:
            return  # it is gone, or was never the run's own
        except ValueError:
            # One that is written anew may be half there: it is read when it has changed.
            source.version = source.version if source.kind.is_whole else _UNREADABLE

    def _read(self, source: _Source, opened: OpenOutput, until_s: float) -> Iterator[Record]:
        head = opened.piece(0, _HEAD_BYTES)
        if source.kind.is_whole:
            source.offset = 0
        elif not head.startswith(source.head) or opened.file.size_bytes < source.offset:
            source.begin_anew()
        at_once = _MOST_WHOLE_BYTES if source.kind.is_whole else PIECE_BYTES
        is_late = False
        while not is_late:
            data = opened.piece(source.offset, at_once)
            is_all = len(data) < at_once
            if is_all:
                source.version = opened.file.version
            if not data or (source.kind.is_whole and not is_all):
                return
            records, more_bytes = source.reader.read(data)
            source.offset += more_bytes
            source.head = head[: source.offset]
            skipped, source.skip = source.skip, max(source.skip - len(records), 0)
            source.taken += len(records)
            yield from records[skipped:]
            is_late = is_all or not more_bytes or self.clock.monotonic_s() >= until_s

    def _points(
        self, source: _Source, records: Iterator[Record], elapsed_s: float
    ) -> Iterator[ProgressPoint]:
        """The same as points; those of one second are one, where the file says the time."""
        held: ProgressPoint | None = None
        for record in records:
            t_s = elapsed_s
            if record.wall_s is not None:
                t_s = record.wall_s - self.started_at.timestamp()
                if t_s < -1.0:
                    continue  # of an earlier attempt, or no time at all
                t_s = max(0.0, min(t_s, elapsed_s))
            now, metrics = source.advance(record, t_s, self.epochs, self.iterations), record.metrics
            if held is not None:
                in_one_second = record.wall_s is not None and int(held.t_s) == int(now.t_s)
                if in_one_second or _place(now) == _place(held):
                    metrics = dict(islice({**held.metrics, **metrics}.items(), MAX_METRICS))
                else:
                    yield held
            held = now._replace(metrics=metrics)
        if held is not None:
            yield held

    def _choose(self, now_s: float) -> None:
        """Have the file lead that knows most; one that has fallen silent gives way."""
        for source in self._sources.values():
            counting = self.counting
            if source.point is None or source is counting:
                continue
            if counting is None or counting.point is None or source.rank > counting.rank:
                self.counting = source
            elif source.rank == counting.rank and source.point.t_s > counting.point.t_s:
                silent_s = now_s - counting.point.t_s
                if silent_s > _SILENT_S + _SILENT_GAPS * counting.gap_s:
                    self.counting = source

    def _in_one_position(
        self, found: Sequence[tuple[_Source, ProgressPoint]]
    ) -> list[ProgressPoint]:
        """The points of all, where the file that counts says that the run is."""
        at, points = self.point, []
        for source, point in sorted(found, key=lambda each: each[1].t_s):
            if source is self.counting:
                points.append(point)
            elif at is not None and point.metrics:
                points.append(placed(point, at))
        return points


def placed(point: ProgressPoint, at: ProgressPoint) -> ProgressPoint:
    """The metrics of *point* in the position of *at*."""
    return at._replace(t_s=point.t_s, metrics=point.metrics)


def _later(one: _Number | None, other: _Number | None) -> _Number | None:
    """The greater one of those that are known."""
    return max((each for each in (one, other) if each is not None), default=None)


def _place(point: ProgressPoint) -> tuple[int, float]:
    iteration = -1 if point.iteration is None else point.iteration
    return iteration, -1.0 if point.epoch is None else point.epoch
