"""Recorded series of a run: when how many iterations were done."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field

from headway.errors import InvalidInput
from headway.estimate.remaining.history import Array
from headway.estimate.row_files import read_rows

MAX_ROWS = 10_000_000
_WALL_CLOCK_S = 1e8
"""A series that begins this late counts from 1970, not from its own start."""
_Amount = Annotated[float, Field(ge=0, le=1e15)]


@dataclass(frozen=True, slots=True)
class Series:
    """One run; all arrays have one length and rise."""

    t_s: Array
    """Seconds since the start of the run."""
    iteration: Array
    """Iterations done then; of epochs where the run reports nothing finer."""
    total: float
    """Iterations of the whole run."""
    epoch: Array | None = None
    """Epochs done then; None where the series does not say."""


class SeriesRow(BaseModel):
    """One row of the file."""

    t_s: _Amount
    iteration: _Amount
    total: _Amount = 0.0
    epoch: _Amount | None = None


def read_series(data: bytes, where: str) -> Series:
    """Read a file with the columns t_s, iteration, total, epoch; others are ignored.

    Rows that bring no progress (a rank that said the same, a restart) are left
    out. Where no row has a total, the last iteration is it.

    Args:
        data: Content of the file.
        where: Name of the file, for messages.

    Raises:
        InvalidInput: A column is missing, a cell is no number, or there are
            fewer than two rows with progress.
    """
    kept: list[SeriesRow] = []
    total = 0.0
    rows = read_rows(data, where).rows(SeriesRow, ("t_s", "iteration"), ("total", "epoch"))
    for _, row in rows:
        total = max(total, row.total)
        if kept and (row.iteration <= kept[-1].iteration or row.t_s < kept[-1].t_s):
            continue
        if len(kept) >= MAX_ROWS:
            raise InvalidInput("rows", len(kept) + 1, f"give at most {MAX_ROWS}", where=where)
        kept.append(row)
    if len(kept) < 2:
        raise InvalidInput("rows", len(kept), "give at least two that bring progress", where=where)
    t_s = np.array([row.t_s for row in kept])
    if t_s[0] > _WALL_CLOCK_S:
        t_s = t_s - t_s[0]
    epochs = [row.epoch for row in kept if row.epoch is not None]
    return Series(
        t_s,
        np.array([row.iteration for row in kept]),
        max(total, kept[-1].iteration),
        np.array(epochs) if len(epochs) == len(kept) else None,
    )
