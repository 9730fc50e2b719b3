"""What an attempt that has ended teaches: its trace."""

from dataclasses import replace

from headway.estimate.features import settings_of
from headway.model.lease import Demand
from headway.model.run import Exit, ExitKind, Measurement
from headway.model.trace import UTILISATION, Trace
from headway.run.here import NodeAttempt


def lesson(
    exit_: Exit, measured: Measurement, demand: Demand, gpu_above_bytes: int | None
) -> Measurement | None:
    """What of *measured* is worth learning: time and peaks, or the bound that was not enough.

    None of an attempt that others kept from what it was granted, nor of one
    that ended for a reason of its own.
    """
    if exit_.kind is ExitKind.OK:
        return measured
    if exit_.kind is ExitKind.OUT_OF_MEMORY:
        host_bytes = max(measured.host_peak_bytes or 0, demand.host_memory_bytes)
        return replace(measured, runtime_s=None, host_peak_bytes=host_bytes, gpu_peak_bytes=None)
    if exit_.kind is ExitKind.GPU_OUT_OF_MEMORY and gpu_above_bytes:
        return replace(
            measured, runtime_s=None, host_peak_bytes=None, gpu_peak_bytes=gpu_above_bytes
        )
    return None


def trace_of(attempt: NodeAttempt, demand: Demand, learnt: Measurement, gpu_type: str) -> Trace:
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
        exit="oom" if learnt.runtime_s is None else "ok",
        started_at=ledger.runs.get(attempt.run_id).started_at,
        recipe=job.recipe(),
        run_id=f"{attempt.run_id}-{attempt.number}",
        metrics={
            **settings_of(job.command),
            **({} if busy is None else {UTILISATION: busy}),
        },
    )
