"""Files of text in which programs keep their progress: CSV, Hugging Face's state, MLflow's metrics.

Whoever wrote them may be hostile: what is no progress raises `ValueError`, and nothing else.
"""

import csv
import json
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headway.progress.report import finite_number
from headway.progress.seen import MAX_COUNT, count, finite

PIECE_BYTES = 1 << 18
"""So much of a file is read at once; a longer record is passed over, or ends the reading."""
_MOST_LINE_BYTES, _MOST_COLUMNS = 1 << 16, 512
_EPOCH = "epoch"
_STEPS = (
    *("global_step", "step", "iteration", "iter", "time/total_timesteps", "total_timesteps"),
    *("timesteps_total", "training_iteration"),
)
"""Columns that count iterations, the surest first: Lightning, Stable-Baselines3, RLlib."""
_LEARNS = re.compile(r"loss|acc|rew|metric|error|mae|mse|auc|map|score|perplexity")


class Record(NamedTuple):
    """One thing that a file says."""

    metrics: dict[str, float]
    iteration: int | None = None
    """Iterations done in all."""
    epoch_done: float | None = None
    """Epochs done in all."""
    total: int | None = None
    """Iterations there will be in all."""
    wall_s: float | None = None
    """When it was written, in seconds since 1970, by the program's word."""


class RecordReader(Protocol):
    """Reads one file, from its beginning to its end, as it grows."""

    def read(self, data: bytes) -> tuple[Sequence[Record], int]:
        """The records in *data*, and how many bytes to go on: then comes what stands there.

        That may be beyond what was given. Raises `ValueError` for what is no such file.
        """
        ...


class CsvReader:
    """A table that gets a row now and then, with a column for the step or the epoch.

    Lightning's ``CSVLogger``, Keras' ``CSVLogger``, Stable-Baselines3's ``progress.csv``, timm's
    ``summary.csv``, Ultralytics' ``results.csv``. Where only epochs are counted, a row is written
    as one ends. Lightning counts both from 0, and tells by its rows how many steps an epoch has.
    """

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._step, self._epoch = -1, -1
        self._first_epoch: int | None = None
        self._last = (0, 0)
        self._per_epoch: float | None = None

    def read(self, data: bytes) -> tuple[Sequence[Record], int]:
        """As `RecordReader`."""
        end = data.rfind(b"\n") + 1
        if not end and len(data) > _MOST_LINE_BYTES:
            raise ValueError("a line without an end")
        found = [self._line(line) for line in data[:end].split(b"\n")]
        return [each for each in found if each is not None], end

    def _line(self, line: bytes) -> Record | None:
        text = line.decode(errors="replace").strip("\r\ufeff ")
        if not text or len(line) > _MOST_LINE_BYTES:
            return None
        try:
            cells = [each.strip() for each in next(csv.reader([text]), [])]
        except csv.Error:
            return None
        if not self._columns:
            self._take_header([each.lower() for each in cells])
            return None
        row = [finite_number(each) if each else None for each in cells[: len(self._columns)]]
        counted = self._step, self._epoch
        epoch, step = (row[at] if 0 <= at < len(row) else None for at in reversed(counted))
        metrics = finite(
            (name, number)
            for at, (name, number) in enumerate(zip(self._columns, row, strict=False))
            if at not in counted
        )
        if self._step < 0:
            return None if epoch is None else self._end_of_epoch(epoch, metrics)
        iteration = count(step)
        if iteration is None:
            return None
        done = None if epoch is None else self._epochs_at(iteration, epoch)
        return Record(metrics, iteration, done)

    def _take_header(self, names: list[str]) -> None:
        steps = [names.index(each) for each in _STEPS if each in names]
        self._step = steps[0] if steps else -1
        self._epoch = names.index(_EPOCH) if _EPOCH in names else -1
        counted = steps or self._epoch >= 0
        if not (counted and any(map(_LEARNS.search, names))) or len(names) > _MOST_COLUMNS:
            raise ValueError("a table of something else")
        self._columns = names

    def _end_of_epoch(self, epoch: float, metrics: dict[str, float]) -> Record | None:
        number = count(epoch)
        if number is None:
            return None
        if self._first_epoch is None:
            self._first_epoch = min(number, 1)
        return Record(metrics, None, float(number + 1 - self._first_epoch))

    def _epochs_at(self, step: int, epoch: float) -> float | None:
        """Epochs done in all at *step* of *epoch*; None until the first one's length is known."""
        last_step, last_epoch = self._last
        if not epoch.is_integer() or not 0 <= epoch <= MAX_COUNT:
            return None
        if epoch > last_epoch and step > last_step > 0:
            self._per_epoch = (last_step + 1) / (last_epoch + 1)
        self._last = step, int(epoch)
        return None if self._per_epoch is None else (step + 1) / self._per_epoch


class TrainerStateReader:
    """``trainer_state.json`` of Hugging Face's ``Trainer``, which each checkpoint has anew.

    ``transformers.TrainerState``: ``global_step``, ``max_steps``, ``epoch`` and ``log_history``.
    It is given whole.
    """

    def __init__(self) -> None:
        self._taken = 0

    def read(self, data: bytes) -> tuple[Sequence[Record], int]:
        """As `RecordReader`."""
        try:
            state = json.loads(data)
        except RecursionError as error:
            raise ValueError("nested without end") from error
        history = state.get("log_history") if isinstance(state, dict) else None
        if not isinstance(history, list):
            raise ValueError("no state of a trainer")
        said = [each for each in history[self._taken :] if isinstance(each, dict)]
        self._taken = max(self._taken, len(history))
        return [_logged(each, state) for each in said] + [_logged(state, state)], len(data)


def _logged(said: dict[str, object], state: dict[str, object]) -> Record:
    """What an entry of the log says, or the state itself."""
    step = said.get("global_step") if said is state else said.get("step")
    epoch = finite_number(said.get("epoch"))
    metrics = () if said is state else said.items()
    return Record(
        finite((k, v) for k, v in metrics if k not in ("step", _EPOCH) and not isinstance(v, str)),
        count(step),
        epoch if epoch is not None and 0 <= epoch <= MAX_COUNT else None,
        count(state.get("max_steps")) or None,
    )


class MlflowReader:
    """One metric of a run in MLflow's file store: lines of milliseconds, value and step."""

    def __init__(self, name: str) -> None:
        """Of the metric of this *name*."""
        self._name = name

    def read(self, data: bytes) -> tuple[Sequence[Record], int]:
        """As `RecordReader`."""
        end = data.rfind(b"\n") + 1
        if not end and len(data) > _MOST_LINE_BYTES:
            raise ValueError("a line without an end")
        found = []
        for line in data[:end].split(b"\n"):
            words = line.split()
            if len(words) != 3:
                continue
            wall_ms, value, step = (finite_number(word) for word in words)
            if step is not None and wall_ms is not None:
                metrics = finite([(self._name, value)])
                found.append(Record(metrics, count(step), wall_s=wall_ms / 1000))
        return found, end
