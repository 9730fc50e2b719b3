"""What an attempt that has ended teaches: its trace."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from headway.estimate.options import numbers_of
from headway.model.lease import Basis, Demand
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement
from headway.model.trace import AFTER, UTILISATION, Trace
from headway.run.here import NodeAttempt

CUT_SHORT = frozenset({ExitKind.TIMED_OUT, ExitKind.CANCELLED, ExitKind.PREEMPTED})
"""Ends of programs that would have gone on: they had done what they do all the time."""
_BATCHES = 2
"""A program that has reported so often has trained on a batch: its framework's allocator holds
what each further one takes."""


def lesson(
    exit_: Exit,
    measured: Measurement,
    demand: Demand,
    gpu_above_bytes: int | None,
    *,
    reports: int = 0,
) -> Measurement | None:
    """What of *measured* is worth learning: time and peaks, or the bound that was not enough.

    Of one that was cut short what it held of a GPU, where nobody had known how much that would be.
    None of an attempt that others kept from what it was granted, nor of one
    that ended for a reason of its own.

    Args:
        exit_: How the attempt ended.
        measured: What it used.
        demand: What it was granted.
        gpu_above_bytes: What it ran out of on a GPU; None where others kept it from that.
        reports: How often it reported progress; asked of one that was cut short.
    """
    if exit_.kind is ExitKind.OK:
        return measured
    if exit_.kind in CUT_SHORT and demand.gpu_memory_basis is Basis.PRIOR and reports >= _BATCHES:
        held_bytes = measured.gpu_peak_bytes
        return Measurement(gpu_peak_bytes=held_bytes) if held_bytes else None
    if exit_.kind is ExitKind.OUT_OF_MEMORY:
        host_bytes = max(measured.host_peak_bytes or 0, demand.host_memory_bytes)
        return replace(measured, runtime_s=None, host_peak_bytes=host_bytes, gpu_peak_bytes=None)
    if exit_.kind is ExitKind.GPU_OUT_OF_MEMORY and gpu_above_bytes:
        return replace(
            measured, runtime_s=None, host_peak_bytes=None, gpu_peak_bytes=gpu_above_bytes
        )
    return None


def trace_of(
    attempt: NodeAttempt,
    exit_: Exit,
    demand: Demand,
    learnt: Measurement,
    gpu_type: str,
    *,
    started_at: datetime | None,
) -> Trace:
    """The trace of an attempt; what it *learnt* has a runtime only where it ended well."""
    job, ledger = attempt.job, attempt.site.ledger
    training = job.training
    latest = ledger.progress.latest(attempt.run_id)
    busy = learnt.gpu_utilisation_frac
    return Trace(
        network=training.network or job.recipe(),
        gpu_type=gpu_type,
        gpus=demand.gpus * job.nodes,
        nodes=job.nodes,
        batch_size=training.batch_size,
        runtime_s=learnt.runtime_s,
        precision=training.precision,
        framework=training.framework,
        data_threads=training.data_threads,
        dataset_bytes=attempt.dataset_bytes,
        dataset_samples=training.samples,
        epochs=float(training.epochs) if training.epochs else None,
        iterations=latest.iteration if latest else None,
        host_peak_bytes=learnt.host_peak_bytes,
        gpu_peak_bytes=learnt.gpu_peak_bytes,
        cpus=demand.cpus,
        exit=_exit_of(exit_),
        started_at=started_at,
        recipe=job.recipe(),
        team=attempt.job.team,
        owner=attempt.job.owner,
        run_id=f"{attempt.run_id}-{attempt.number}",
        metrics={
            **numbers_of(job.command, job.configuration),
            **({} if busy is None else {UTILISATION: busy}),
            **after_count(ledger.progress.series(attempt.run_id, attempt.number), learnt.runtime_s),
        },
    )


def after_count(points: Sequence[ProgressPoint], runtime_s: float | None) -> Mapping[str, float]:
    """How long a run of *runtime_s* went on when the first total of *points* was reached.

    Empty where none was.
    """
    for each in points:
        done = each.epoch if each.iteration is None else each.iteration
        if runtime_s and each.total and done is not None and done >= each.total:
            return {AFTER: max(runtime_s - each.t_s, 0.0)}
    return {}


def _exit_of(exit_: Exit) -> str:
    if exit_.kind in CUT_SHORT:
        return "failed"
    return "ok" if exit_.kind is ExitKind.OK else "oom"
