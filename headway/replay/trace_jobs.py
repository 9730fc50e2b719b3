"""Reading a trace of jobs, checked before anything is replayed."""

import enum
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel

from headway.errors import InvalidInput
from headway.estimate.row_files import number, read_rows, whole

REQUIRED = ("submit_s", "duration_s", "gpus")

MOST = 1e15
"""No time in seconds and no memory in bytes is larger; sums of them stay finite."""

_Amount = Annotated[
    float, number(lambda value: 0 <= value <= MOST, f"give a number from 0 to {MOST:.0e}")
]


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
    """One job of a trace. Times count from the first submission."""

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


class JobRow(BaseModel):
    """One row of the file; only the columns that the replay needs are read."""

    job_id: str = ""
    team: str = ""
    submit_s: _Amount
    duration_s: _Amount
    gpus: Annotated[int, whole(1, MOST)]
    gpu_memory_bytes: _Amount = 0.0
    gpu_util_frac: _Amount = 0.0
    user_limit_s: _Amount = 0.0
    predicted_s: _Amount = 0.0
    predicted_high_s: _Amount = 0.0

    def told(self, estimates: Estimates) -> tuple[float, float]:
        """Median and upper quantile of its runtime, as the policy is told them."""
        return {
            Estimates.USER: (self.user_limit_s, self.user_limit_s),
            Estimates.LEARNED: (self.predicted_s, self.predicted_high_s),
            Estimates.PERFECT: (self.duration_s, self.duration_s),
        }[estimates]


def read_jobs(data: bytes, name: str, estimates: Estimates, sharing: GpuSharing) -> list[TraceJob]:
    """The jobs of a trace in the order of their submission.

    Args:
        data: Content of the file.
        name: Its name, for messages.
        estimates: Which columns say what the policy is told of runtimes.
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
    if estimates is Estimates.LEARNED:
        needed += ["predicted_s", "predicted_high_s"]
    hint = f" (for --estimates {estimates} --sharing {sharing})"
    rows: list[JobRow] = []
    seen: set[str] = set()
    for where, row in file.rows(JobRow, needed, ("job_id", "team"), hint):
        if row.job_id in seen:
            allowed = "it is there twice; give each job its own"
            raise InvalidInput("job_id", row.job_id, allowed, where=where)
        if "job_id" in file.columns:
            seen.add(row.job_id)
        rows.append(row)
    if not rows:
        raise InvalidInput("rows", 0, "give a trace with at least one job", where=name)
    first_s = min(row.submit_s for row in rows)
    found = [
        _job(row, row.job_id or f"row{at}", first_s, *row.told(estimates))
        for at, row in enumerate(rows)
    ]
    return sorted(found, key=lambda job: job.submit_s)


def _job(row: JobRow, job_id: str, first_s: float, median_s: float, high_s: float) -> TraceJob:
    return TraceJob(
        job_id=job_id,
        team=row.team,
        submit_s=row.submit_s - first_s,
        duration_s=row.duration_s,
        gpus=row.gpus,
        gpu_memory_bytes=int(row.gpu_memory_bytes),
        gpu_util_frac=row.gpu_util_frac,
        median_s=max(median_s, 1.0),
        high_s=max(high_s, median_s, 1.0),
    )
