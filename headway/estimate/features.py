"""What is known of a run before it starts, and which time of a trace is learnt from.

A job and a trace both become a `Configuration`; every estimator reads that
and nothing else, so nothing that is only measured afterwards can leak in.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.estimate.options import numbers_of
from headway.model.job import TrainingJob
from headway.model.trace import Trace


class Unit(enum.StrEnum):
    """What one measured time is the time of; never mixed within an estimator."""

    ITERATION = "iteration"
    EPOCH = "epoch"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is known before the start. None: unknown, never zero."""

    network: str = ""
    gpu_type: str = "cpu"
    """Normalised product name, such as ``v100``; ``cpu`` when no GPU is used."""
    gpus: int = 1
    """In all, over every node."""
    beside: str = ""
    """Network of what else is on its GPU; empty where it has it alone, or that is not known."""
    beside_batch_size: int | None = None
    nodes: int = 1
    batch_size: int | None = None
    """Per GPU."""
    precision: str = "fp32"
    framework: str = ""
    recipe: str = ""
    team: str = ""
    """Whose runs tell of it; empty for what all may know."""
    data_threads: int | None = None
    cpus: float | None = None
    dataset_bytes: int | None = None
    dataset_samples: int | None = None
    epochs: float | None = None
    iterations: int | None = None
    flops: float | None = None
    """Operations of one sample's forward pass, counted alike for all networks of a site."""
    params: float | None = None
    activations: float | None = None
    """Elements of all layers' outputs for one sample."""
    layers: float | None = None
    gpu_flops_per_s: float | None = None
    """Peak of one GPU at the precision used."""
    gpu_memory_bytes: float | None = None
    gpu_bandwidth_bytes_per_s: float | None = None
    gpu_is_guessed: bool = False
    """Whether what is known of the GPU is only its nearest relative's."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """Other numbers that were set before the start, by name."""

    def iterations_in_all(self) -> float | None:
        """Iterations of the whole run, from what is known; None when it cannot be told."""
        if self.iterations:
            return float(self.iterations)
        per_epoch = self.iterations_per_epoch()
        return per_epoch * self.epochs if per_epoch and self.epochs else None

    def iterations_per_epoch(self) -> float | None:
        """Iterations of one epoch; each takes a batch on every GPU."""
        if not (self.dataset_samples and self.batch_size):
            return None
        return float(math.ceil(self.dataset_samples / (self.batch_size * max(self.gpus, 1))))


def from_job(
    job: TrainingJob,
    *,
    gpu_type: str = "",
    gpus: int | None = None,
    nodes: int = 1,
    dataset_bytes: int | None = None,
) -> Configuration:
    """*job* as it would run on *gpus* GPUs of *gpu_type*, over *nodes* nodes.

    Args:
        job: What was asked for.
        gpu_type: Normalised name of the GPUs it would get; the job's own wish
            when empty.
        gpus: GPUs in all; those the job asks for on each node when None.
        nodes: Nodes it would run on.
        dataset_bytes: Measured size of its data set; the declared one when None.
    """
    training, resources = job.training, job.resources
    count = job.gpus * nodes if gpus is None else gpus
    wanted = (gpu_type or resources.gpu_type).lower()
    return Configuration(
        network=training.network.lower(),
        gpu_type=(wanted or "unknown") if count else "cpu",
        gpus=max(count, 1),
        nodes=nodes,
        batch_size=training.batch_size,
        precision=training.precision,
        framework=training.framework.lower(),
        recipe=job.recipe(),
        team=job.team,
        data_threads=training.data_threads,
        cpus=resources.cpus,
        dataset_bytes=job.declared_data_bytes if dataset_bytes is None else dataset_bytes,
        dataset_samples=training.samples,
        epochs=training.epochs,
        settings=numbers_of(job.command, job.configuration),
    )


_SAME_IN_A_TRACE = (
    *("nodes", "batch_size", "precision", "data_threads", "cpus", "dataset_bytes"),
    *("dataset_samples", "epochs", "iterations", "flops", "params", "activations", "layers"),
    "team",
)
"""Fields of a trace that a configuration has under the same name and as they are."""


def from_trace(trace: Trace) -> Configuration:
    """What was known of *trace* before it started."""
    return Configuration(
        network=trace.network.lower(),
        gpu_type=trace.gpu_type.lower(),
        gpus=max(trace.gpus, 1),
        framework=trace.framework.lower(),
        recipe=trace.recipe or trace.network,
        settings={k: v for k, v in trace.metrics.items() if k.startswith("--")},
        **{name: getattr(trace, name) for name in _SAME_IN_A_TRACE},
    )


def measured_times(trace: Trace) -> dict[Unit, float]:
    """Seconds by unit, as measured by *trace* or following from what it measured.

    A trace that did not end well has no time to learn from: a run that was
    killed early is not a fast run.
    """
    if trace.exit != "ok":
        return {}
    known = from_trace(trace)
    per_epoch, in_all = known.iterations_per_epoch(), known.iterations_in_all()
    found = {
        Unit.ITERATION: [
            trace.iteration_s,
            known.batch_size * known.gpus / trace.samples_per_s
            if trace.samples_per_s and known.batch_size
            else None,
            trace.epoch_s / per_epoch if trace.epoch_s and per_epoch else None,
            trace.runtime_s / in_all if trace.runtime_s and in_all else None,
        ],
        Unit.EPOCH: [
            trace.epoch_s,
            trace.dataset_samples / trace.samples_per_s
            if trace.samples_per_s and trace.dataset_samples
            else None,
        ],
        Unit.RUN: [trace.runtime_s],
    }
    times = {unit: next((t for t in each if t), None) for unit, each in found.items()}
    return {u: t for u, t in times.items() if t is not None and math.isfinite(t) and t > 0}
