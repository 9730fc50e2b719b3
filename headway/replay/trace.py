"""Reading a trace of jobs: a CSV file, checked before anything is replayed."""

import enum
import io
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from headway.errors import InvalidInput

REQUIRED = ("submit_s", "duration_s", "gpus")

MOST = 1e15
"""No time in seconds and no memory in bytes is larger; sums of them stay finite."""


class Estimates(enum.StrEnum):
    """What the policy is told about runtimes."""

    USER = "user"
    """The users' limits."""
    LEARNED = "learned"
    """Predictions: a median and an upper quantile."""
    PERFECT = "perfect"
    """The truth."""


class GpuSharing(enum.StrEnum):
    """Who may be together on a GPU."""

    WHOLE = "whole"
    """Nobody."""
    MEMORY = "memory"
    """Jobs of one GPU whose memory fits."""
    HEADWAY = "headway"
    """Jobs of one GPU whose memory fits and whose utilisations add up to at most the limit."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One row of a trace. Times count from the first submission."""

    job_id: str
    team: str
    submit_s: float
    duration_s: float
    """Alone on its GPUs."""
    gpus: int
    gpu_memory_bytes: int
    gpu_util_frac: float
    median_s: float
    high_s: float


def _columns(estimates: Estimates, sharing: GpuSharing) -> list[str]:
    needed = list(REQUIRED)
    if sharing is not GpuSharing.WHOLE:
        needed += ["gpu_memory_bytes", "gpu_util_frac"]
    if estimates is Estimates.USER:
        needed += ["user_limit_s"]
    if estimates is Estimates.LEARNED:
        needed += ["predicted_s", "predicted_high_s"]
    return needed


def read(data: bytes, name: str) -> pd.DataFrame:
    """The rows in *data*, the content of the file called *name*, as text, not yet checked.

    Raises:
        InvalidInput: It is no CSV file, has no rows, or a row with more cells than the header.
    """
    try:
        rows = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except ValueError as error:
        # pandas' errors for what is no table are ValueErrors; so is text that is not UTF-8.
        cause = str(error).strip().splitlines()[0] if str(error).strip() else "unreadable"
        raise InvalidInput(
            "trace", name, f"it is no CSV file with a header ({cause}); give one"
        ) from error
    if not isinstance(rows.index, pd.RangeIndex):
        # pandas takes what the first row has too much as names of rows, and shifts all others.
        cells, columns = rows.index.nlevels + len(rows.columns), len(rows.columns)
        allowed = f"give {columns}, as the header has"
        raise InvalidInput("cells", cells, allowed, where=f"{name}:2")
    if rows.empty:
        raise InvalidInput("trace", name, "it has no rows; give a trace with at least one job")
    return rows


def jobs(
    rows: pd.DataFrame, estimates: Estimates, sharing: GpuSharing, *, where: str
) -> list[TraceJob]:
    """The jobs of *rows* in the order of their submission.

    Args:
        rows: As `read` returned them.
        estimates: Which columns say what the policy is told of runtimes.
        sharing: Whether the columns about the GPU are needed.
        where: Name of the file, for messages.

    Raises:
        InvalidInput: A column is missing, or a value is not allowed; says which and where.
    """
    needed = _columns(estimates, sharing)
    missing = [name for name in needed if name not in rows.columns]
    if missing:
        raise InvalidInput(
            "columns",
            ", ".join(str(name) for name in rows.columns),
            f"missing: {', '.join(missing)} (for --estimates {estimates} --sharing {sharing})",
            where=where,
        )
    numbers = {name: _numbers(rows, name, where=where) for name in needed}
    names = _names(rows, where=where)
    teams = rows["team"].tolist() if "team" in rows.columns else [""] * len(rows)
    zero = [0.0] * len(rows)
    memory = numbers.get("gpu_memory_bytes", zero)
    busy = numbers.get("gpu_util_frac", zero)
    durations = numbers["duration_s"]
    median, high = durations, durations
    if estimates is Estimates.USER:
        median = high = numbers["user_limit_s"]
    elif estimates is Estimates.LEARNED:
        median, high = numbers["predicted_s"], numbers["predicted_high_s"]
    first_s = min(numbers["submit_s"])
    found = [
        TraceJob(
            job_id=names[at],
            team=teams[at],
            submit_s=numbers["submit_s"][at] - first_s,
            duration_s=durations[at],
            gpus=int(numbers["gpus"][at]),
            gpu_memory_bytes=int(memory[at]),
            gpu_util_frac=busy[at],
            median_s=max(median[at], 1.0),
            high_s=max(high[at], median[at], 1.0),
        )
        for at in range(len(rows))
    ]
    return sorted(found, key=lambda job: job.submit_s)


def _names(rows: pd.DataFrame, *, where: str) -> list[str]:
    if "job_id" not in rows.columns:
        return [f"row{at}" for at in range(len(rows))]
    names: list[str] = rows["job_id"].tolist()
    twice = rows.index[rows["job_id"].duplicated()].tolist()
    if twice:
        raise InvalidInput(
            "job_id",
            names[twice[0]],
            "it is there twice; give each job its own",
            where=f"{where}:{twice[0] + 2}",
        )
    return names


def _numbers(rows: pd.DataFrame, name: str, *, where: str) -> list[float]:
    """A column as numbers from 0 to `MOST`; GPUs as whole numbers of at least 1."""
    values: Sequence[float] = pd.to_numeric(rows[name], errors="coerce").astype(float).tolist()
    for at, value in enumerate(values):
        allowed = ""
        if not 0 <= value <= MOST:
            allowed = f"give a number from 0 to {MOST:.0e}"
        elif name == "gpus" and (value < 1 or value != int(value)):
            allowed = "give a whole number of at least 1"
        if allowed:
            raise InvalidInput(name, rows[name].iloc[at], allowed, where=f"{where}:{at + 2}")
    return list(values)
