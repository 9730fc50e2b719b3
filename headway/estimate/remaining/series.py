"""Recorded series of a run: when how many iterations were done."""

import csv
import io
import math
from dataclasses import dataclass

import numpy as np

from headway.errors import InvalidInput
from headway.estimate.remaining.history import Array

COLUMNS = ("t_s", "iteration", "total")
MAX_ROWS = 10_000_000
_WALL_CLOCK_S = 1e8
"""A series that begins this late counts from 1970, not from its own start."""


@dataclass(frozen=True, slots=True)
class Series:
    """One run; both arrays have one length and rise."""

    t_s: Array
    """Seconds since the start of the run."""
    iteration: Array
    """Iterations done then; of epochs where the run reports nothing finer."""
    total: float
    """Iterations of the whole run."""
    epoch: Array | None = None
    """Epochs done then; None where the series does not say."""


def read_series(data: bytes, where: str) -> Series:
    """Read a CSV file with the columns t_s, iteration, total, epoch; others are ignored.

    Rows that bring no progress (a rank that said the same, a restart) are left
    out. Where no row has a total, the last iteration is it.

    Args:
        data: Content of the file.
        where: Name of the file, for messages.

    Raises:
        InvalidInput: A column is missing, a cell is no number, or there are
            fewer than two rows with progress.
    """
    rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace")))
    names = {name.strip(): name for name in rows.fieldnames or () if name}
    for needed in ("t_s", "iteration"):
        if needed not in names:
            allowed = f"the first line must name the columns {', '.join(COLUMNS)}"
            raise InvalidInput(needed, ", ".join(names), allowed, where=f"{where}:1")
    times: list[float] = []
    done: list[float] = []
    epochs: list[float] = []
    total = 0.0
    for row in rows:
        place = f"{where}:{rows.line_num}"
        t_s, iteration = (_number(row, names[name], name, place) for name in COLUMNS[:2])
        if (text := row.get(names.get("total", ""))) and text.strip():
            total = max(total, _number(row, names["total"], "total", place))
        if done and (iteration <= done[-1] or t_s < times[-1]):
            continue
        if len(done) >= MAX_ROWS:
            raise InvalidInput("rows", len(done) + 1, f"give at most {MAX_ROWS}", where=where)
        times.append(t_s)
        done.append(iteration)
        if (text := row.get(names.get("epoch", ""))) and text.strip():
            epochs.append(_number(row, names["epoch"], "epoch", place))
    if len(done) < 2:
        raise InvalidInput("rows", len(done), "give at least two that bring progress", where=where)
    t = np.asarray(times)
    if t[0] > _WALL_CLOCK_S:
        t = t - t[0]
    epoch = np.asarray(epochs) if len(epochs) == len(done) else None
    return Series(t, np.asarray(done), max(total, done[-1]), epoch)


def _number(row: dict[str, str], column: str, name: str, place: str) -> float:
    text = row.get(column)
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1e15:  # also false for NaN
        raise InvalidInput(name, text, "give a number from 0 on", where=place)
    return number
