"""What a replay says about a policy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headway.estimate.starts import score
from headway.policy.settings import PolicySettings
from headway.replay.cluster import Job
from headway.replay.said_starts import SaidStarts
from headway.replay.simulate import PolicyName, Result
from headway.replay.trace_jobs import Estimates, GpuSharing

KEPT_S = 60.0
"""A promise is kept where the job starts at most so much later."""
BOUND_S = 10.0
"""Bounded slowdown takes shorter jobs for this long (Feitelson & Rudolph 1998)."""


def document(
    result: Result,
    policy: PolicyName,
    estimates: Estimates,
    sharing: GpuSharing,
    settings: PolicySettings,
    *,
    said: SaidStarts | None = None,
) -> dict[str, Any]:
    """The figures of *result*, by the names of the JSON output; times in seconds.

    Completion is submission to end. Bounded slowdown is completion by the
    runtime alone, at least 1, with runtimes of at least `BOUND_S`. Stretch is
    the actual runtime by the runtime alone. Utilisation counts a GPU as used
    while at least one job is on it, against all GPUs from the first
    submission to the last end. A team's first-come wait is what its jobs would
    wait on its part of the GPUs by weight, without order, gaps or other teams.
    """
    jobs = result.jobs
    submit = np.array([job.trace.submit_s for job in jobs])
    start = np.array([job.start_s for job in jobs])
    end = np.array([job.end_s for job in jobs])
    alone = np.array([job.trace.duration_s for job in jobs])
    wait, completion = start - submit, end - submit
    makespan_s = float(end.max() - submit.min())
    capacity_gpu_s = result.shape.nodes * result.shape.gpus * makespan_s
    ran = alone > 0
    alone_s, late = _first_come_waits(result, settings), _late(jobs)
    starts = score(said.forecasts()) if said is not None else None
    stretch = (end - start)[ran] / alone[ran]
    return {
        "policy": str(policy),
        "estimates": str(estimates),
        "sharing": str(sharing),
        "jobs": len(jobs),
        "mean_wait_s": float(wait.mean()),
        "median_wait_s": float(np.median(wait)),
        "p95_wait_s": float(np.percentile(wait, 95)),
        "max_wait_s": float(wait.max()),
        "mean_completion_s": float(completion.mean()),
        "mean_bounded_slowdown": float(
            np.maximum(1.0, completion / np.maximum(alone, BOUND_S)).mean()
        ),
        "utilisation_frac": result.busy_gpu_s / capacity_gpu_s if capacity_gpu_s else 0.0,
        "makespan_s": makespan_s,
        "mean_stretch": float(stretch.mean()) if ran.any() else 1.0,
        "promises": len(late),
        "promises_broken": sum(each > KEPT_S for each in late),
        "latest_s": max(late, default=0.0),
        "starts": starts and starts._asdict(),
        "by_gpus": _waits(jobs, "gpus", lambda job: job.trace.gpus),
        "by_user": _waits(jobs, "user", lambda job: job.trace.user),
        "by_team": [
            each | {"first_come_wait_s": alone_s[each["team"]]}
            for each in _waits(jobs, "team", lambda job: job.trace.team)
        ],
    }


def _late(jobs: Sequence[Job]) -> list[float]:
    """By how much each job that was promised a start began later; negative when sooner."""
    return [job.start_s - job.ask.promised_s for job in jobs if job.ask.promised_s is not None]


def _waits(
    jobs: Sequence[Job], name: str, group: Callable[[Job], str | int]
) -> list[dict[str, Any]]:
    """How long the jobs of each group wait."""
    waits: dict[str | int, list[float]] = {}
    for job in jobs:
        waits.setdefault(group(job), []).append(job.start_s - job.trace.submit_s)
    return [
        {
            name: key,
            "jobs": len(found),
            "mean_wait_s": float(np.mean(found)),
            "max_wait_s": max(found),
        }
        for key, found in sorted(waits.items())
    ]


def _first_come_waits(result: Result, settings: PolicySettings) -> dict[str, float]:
    """By team, the mean wait of its jobs if it had its share of the GPUs for itself."""
    teams = {job.trace.team for job in result.jobs}
    weights = {team: settings.team(team).weight for team in teams}
    gpus = result.shape.nodes * result.shape.gpus
    found: dict[str, float] = {}
    for team in teams:
        rate, backlog_s, at_s = gpus * weights[team] / sum(weights.values()), 0.0, 0.0
        waits = []
        for trace in (job.trace for job in result.jobs if job.trace.team == team):
            backlog_s = max(backlog_s - rate * (trace.submit_s - at_s), 0.0)
            at_s = trace.submit_s
            waits.append(backlog_s / rate)
            backlog_s += trace.duration_s * trace.gpus
        found[team] = float(np.mean(waits))
    return found
