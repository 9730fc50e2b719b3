"""Reading a trace of jobs, checked before anything is replayed."""

import enum
import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field

from headway.errors import InvalidInput
from headway.estimate.row_files import read_rows

REQUIRED = ("submit_s", "duration_s", "gpus")

MOST = 1e15
"""No time in seconds and no memory in bytes is larger; sums of them stay finite."""

_Amount = Annotated[float, Field(ge=0, le=MOST)]


class Estimates(enum.StrEnum):
    """What the policy is told about runtimes."""

    USER = "user"
    """The users' limits."""
    LEARNED = "learned"
    """What a site would have said by then, from the jobs that had ended; see `History`."""
    GIVEN = "given"
    """The file's own predictions: a median and an upper quantile."""
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
    """One job of a trace. Times count from the first submission."""

    job_id: str
    team: str
    submit_s: float
    duration_s: float
    """Alone on its GPUs."""
    gpus: int
    gpu_memory_bytes: int
    """As its user declares it."""
    gpu_util_frac: float
    """Alone on its GPUs; the policy is told only what ended runs of its recipe have shown."""
    limit_s: float = math.inf
    """Its user's limit."""
    predicted_s: tuple[float, float] = (0.0, 0.0)
    """Median and upper quantile of its runtime, where the file gives them."""
    user: str = ""
    recipe: str = ""


class JobRow(BaseModel):
    """One row of the file; only the columns that the replay needs are read."""

    job_id: str = ""
    team: str = ""
    user: str = ""
    recipe: str = ""
    submit_s: _Amount
    duration_s: _Amount
    gpus: Annotated[int, Field(ge=1, le=MOST)]
    gpu_memory_bytes: _Amount = 0.0
    gpu_util_frac: _Amount = 0.0
    user_limit_s: _Amount = 0.0
    predicted_s: _Amount = 0.0
    predicted_high_s: _Amount = 0.0


def read_jobs(data: bytes, name: str, estimates: Estimates, sharing: GpuSharing) -> list[TraceJob]:
    """The jobs of a trace in the order of their submission.

    Args:
        data: Content of the file.
        name: Its name, for messages.
        estimates: What the policy is told of runtimes.
        sharing: Whether the columns about the GPU are needed.

    Raises:
        InvalidInput: A column is missing, a value is not allowed, or a job is
            there twice; says which and where.
    """
    file = read_rows(data, name)
    needed = [*REQUIRED]
    if sharing is not GpuSharing.WHOLE:
        needed += ["gpu_memory_bytes", "gpu_util_frac"]
    if estimates is Estimates.USER:
        needed += ["user_limit_s"]
    if estimates is Estimates.GIVEN:
        needed += ["predicted_s", "predicted_high_s"]
    optional = ["job_id", "team", "user", "recipe"]
    if "user_limit_s" not in needed:
        optional += ["user_limit_s"]
    hint = f" (for --estimates {estimates} --sharing {sharing})"
    rows: list[JobRow] = []
    seen: set[str] = set()
    for where, row in file.rows(JobRow, needed, optional, hint):
        if row.job_id in seen:
            allowed = "it is there twice; give each job its own"
            raise InvalidInput("job_id", row.job_id, allowed, where=where)
        if "job_id" in file.columns:
            seen.add(row.job_id)
        rows.append(row)
    if not rows:
        raise InvalidInput("rows", 0, "give a trace with at least one job", where=name)
    first_s = min(row.submit_s for row in rows)
    found = [_job(row, row.job_id or f"row{at}", first_s) for at, row in enumerate(rows)]
    return sorted(found, key=lambda job: job.submit_s)


def _job(row: JobRow, job_id: str, first_s: float) -> TraceJob:
    return TraceJob(
        job_id=job_id,
        team=row.team,
        submit_s=row.submit_s - first_s,
        duration_s=row.duration_s,
        gpus=row.gpus,
        gpu_memory_bytes=int(row.gpu_memory_bytes),
        gpu_util_frac=row.gpu_util_frac,
        limit_s=row.user_limit_s or math.inf,
        predicted_s=(row.predicted_s, row.predicted_high_s),
        user=row.user,
        recipe=row.recipe,
    )
