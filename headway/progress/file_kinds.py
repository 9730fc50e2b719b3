"""Which files of a program hold progress, by their names."""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headway.progress.event_files import EventReader, WandbReader
from headway.progress.records import CsvReader, MlflowReader, RecordReader, TrainerStateReader

_STATE = re.compile(r"(?:(.*)/)?trainer_state\.json")
_CHECKPOINT = re.compile(r"(?:^|/)checkpoint-[0-9]+$")
_EVENTS = re.compile(r"(?:.*/)?[^/]*\.tfevents\.[^/]*")
_TABLE = re.compile(r"(?:.*/)?(?:[^/]+\.csv|training\.log)")
_MLFLOW = re.compile(r"(?:.*/)?mlruns/[^/]+/[^/]+/metrics/(.+)")
_WANDB = re.compile(r"(?:.*/)?run-[^/]+\.wandb")
_HELD_OUT = frozenset({"val", "valid", "validation", "eval", "test"})
"""Folders whose metrics have the same names as those of training."""


class FileKind(NamedTuple):
    """How a file is read."""

    series: str
    """Files of the same series say the same again, and more."""
    new_reader: Callable[[], RecordReader]
    is_whole: bool = False
    """It is written anew each time, and read as one."""


def kind_of(path: str) -> FileKind | None:
    """How the file at *path* is read; None where by its name it holds no progress."""
    if found := _STATE.fullmatch(path):
        series = _CHECKPOINT.sub("", found[1] or "")
        return FileKind(f"{series}/state", TrainerStateReader, is_whole=True)
    if _EVENTS.fullmatch(path):
        folder = path.rpartition("/")[0].rpartition("/")[2]
        prefix = f"{folder}/" if folder in _HELD_OUT else ""
        return FileKind(path, partial(EventReader, prefix))
    if found := _MLFLOW.fullmatch(path):
        return FileKind(path, partial(MlflowReader, found[1]))
    if _TABLE.fullmatch(path):
        return FileKind(path, CsvReader)
    return FileKind(path, WandbReader) if _WANDB.fullmatch(path) else None
