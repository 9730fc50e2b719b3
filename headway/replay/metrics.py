"""What a replay says about a policy."""

import numpy as np

from headway.replay.simulate import PolicyName, Result
from headway.replay.trace_jobs import Estimates, GpuSharing

BOUND_S = 10.0
"""Bounded slowdown takes shorter jobs for this long (Feitelson & Rudolph 1998)."""


def document(
    result: Result, policy: PolicyName, estimates: Estimates, sharing: GpuSharing
) -> dict[str, str | int | float]:
    """The figures of *result*, by the names of the JSON output; times in seconds.

    Completion is submission to end. Bounded slowdown is completion by the
    runtime alone, at least 1, with runtimes of at least `BOUND_S`. Stretch is
    the actual runtime by the runtime alone. Utilisation counts a GPU as used
    while at least one job is on it, against all GPUs from the first
    submission to the last end.
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
    }
