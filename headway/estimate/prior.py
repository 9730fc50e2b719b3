"""What a job is taken to need: declared, else predicted, else the rule. Cheap to import.

The rule for host memory, ten times the data set, is what people who size such
jobs by hand allow: the raw bytes, the parsed columns, a training copy, and the
framework itself.
"""

from headway.model.job import MIN_MEMORY_BYTES, TrainingJob
from headway.model.lease import Basis, Demand, Sharing
from headway.model.run import Prediction
from headway.units import GIB, MIB

HOST_FACTOR = 10
"""Bytes of host memory for each byte of data set."""
HOST_FLOOR_BYTES = 512 * MIB
"""An interpreter with a framework loaded needs so much before it reads any data."""
GPU_PRIOR_BYTES = 8 * GIB
"""On each GPU, when neither the job nor a trace says."""
UTILISATION_PRIOR = 0.5
"""Of a job that shares: two of them fit a GPU, until traces show what it uses."""


def prior_host_bytes(dataset_bytes: int | None) -> int:
    """Host memory by the rule, for a data set of *dataset_bytes* (None: no data set)."""
    return max(HOST_FLOOR_BYTES, HOST_FACTOR * (dataset_bytes or 0))


def demand_for(job: TrainingJob, predicted: Prediction, dataset_bytes: int | None = None) -> Demand:
    """What *job* needs on one node: declared, else *predicted*, else the rule.

    Args:
        job: What was asked for.
        predicted: Upper quantiles of its peaks, and its utilisation; a None in it falls to
            the rule.
        dataset_bytes: Measured size of its data set; the declared one when None.

    Returns:
        A demand whose bases say where each number comes from.
    """
    resources = job.resources
    declared = job.dataset.size if job.dataset else None
    known_bytes = declared if dataset_bytes is None else dataset_bytes
    if resources.host_memory != "auto":
        host_bytes, host_basis = resources.host_memory, Basis.DECLARED
    elif predicted.host_peak_bytes is not None:
        # A program that took next to nothing: the engine starts no container with less.
        host_bytes = max(predicted.host_peak_bytes, MIN_MEMORY_BYTES)
        host_basis = Basis.PREDICTED
    else:
        host_bytes, host_basis = prior_host_bytes(known_bytes), Basis.PRIOR
    busy = predicted.gpu_utilisation_frac
    shared_frac = UTILISATION_PRIOR if busy is None else busy
    gpu_bytes, gpu_basis = 0, Basis.DECLARED
    if resources.gpus:
        if resources.gpu_memory is not None:
            gpu_bytes = resources.gpu_memory
        elif predicted.gpu_peak_bytes is not None:
            gpu_bytes, gpu_basis = predicted.gpu_peak_bytes, Basis.PREDICTED
        elif resources.sharing is Sharing.SHARED:
            gpu_bytes, gpu_basis = GPU_PRIOR_BYTES, Basis.PRIOR
    return Demand(
        host_memory_bytes=host_bytes,
        cpus=resources.cpus,
        gpus=resources.gpus,
        gpu_memory_bytes=gpu_bytes,
        sharing=resources.sharing,
        gpu_utilisation_frac=shared_frac if resources.sharing is Sharing.SHARED else 1.0,
        gpu_type=resources.gpu_type,
        ports=tuple(job.ports),
        disk_bytes=resources.disk or 0,
        host_memory_basis=host_basis,
        gpu_memory_basis=gpu_basis,
    )
