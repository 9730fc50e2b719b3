"""What a job is taken to need: declared, else predicted, else the rule. Cheap to import.

The rule for host memory, ten times the data set, is what people who size such
jobs by hand allow: the raw bytes, the parsed columns, a training copy, and the
framework itself. A job of which not even that is known gets little host memory,
and more after it was killed for it; and a GPU to itself.
"""

import math
from collections.abc import Iterable

from headway.model.job import TrainingJob
from headway.model.lease import ANY_PORT, Basis, Demand, Sharing
from headway.model.node import NodeSpace
from headway.model.run import Prediction
from headway.model.session import needs_free_port
from headway.units import GIB, MIB

HOST_FACTOR = 10
"""Bytes of host memory for each byte of data set."""
HOST_FLOOR_BYTES = 512 * MIB
"""The least of any rule: an interpreter with a framework loaded needs so much."""
LEAST_BYTES = 64 * MIB
"""The least that runs of before can say: next to a tighter bound a program that was changed a
little is killed, and nobody could use what is saved."""
GUESS_BYTES = 2 * GIB
"""Of a job without GPUs of which nothing is known; with a small data set, too, it is the framework
that needs the memory."""
GUESS_FOR_GPU_BYTES = 4 * GIB
"""The same for each GPU: what is loaded onto one is in host memory first."""
MORE_OF_UNKNOWN = 2
"""Times what was not enough for a job of which nothing else is known."""
OVER_BOUND = 1.15
"""Times what was not enough: the least that is given next, where more is known."""
OVER_PART = 1.5
"""Times what a run held that was cut short: a validation or a longer sample may still come."""
UTILISATION_PRIOR = 0.5
"""Of a job that shares: two of them fit a GPU, until traces show what it uses."""


def prior_host_bytes(dataset_bytes: int | None, guess_bytes: int) -> int:
    """Host memory by the rule.

    Args:
        dataset_bytes: Size of the data set; None without one, or where its size is not known.
        guess_bytes: See `guessed_host_bytes`.
    """
    if dataset_bytes is None:
        return guess_bytes
    return max(HOST_FACTOR * dataset_bytes, min(GUESS_BYTES, guess_bytes))


def guessed_host_bytes(gpus: int, spaces: Iterable[NodeSpace]) -> int:
    """Host memory of a job of which nothing is known, on *gpus* of a node: little, by *spaces*.

    Too little costs one attempt, which is followed by one with more; too much keeps a node from
    everybody for as long as the job runs.
    """
    largest_bytes = max((each.host_memory_bytes for each in spaces), default=0)
    guess_bytes = GUESS_FOR_GPU_BYTES * gpus or GUESS_BYTES
    return min(guess_bytes, largest_bytes) or HOST_FLOOR_BYTES


def demand_for(
    job: TrainingJob,
    predicted: Prediction,
    dataset_bytes: int | None = None,
    *,
    host_guess_bytes: int = HOST_FLOOR_BYTES,
    gpu_guess_bytes: int | None = None,
) -> Demand:
    """What *job* needs on one node: declared, else *predicted*, else the rule.

    Args:
        job: What was asked for.
        predicted: Upper quantiles of its peaks, and its utilisation; a None in it falls to
            the rule.
        dataset_bytes: Measured size of its data set; the declared one when None.
        host_guess_bytes: See `guessed_host_bytes`.
        gpu_guess_bytes: What its network and batch say of a GPU's memory; None where nothing.
            What a run like it held that was cut short says more.

    Returns:
        A demand whose bases say where each number comes from.
    """
    resources = job.resources
    known_bytes = job.declared_data_bytes if dataset_bytes is None else dataset_bytes
    if resources.host_memory != "auto":
        host_bytes, host_basis = resources.host_memory, Basis.DECLARED
    elif predicted.host_peak_bytes is not None:
        host_bytes = max(predicted.host_peak_bytes, LEAST_BYTES)
        host_basis = Basis.PREDICTED
    else:
        host_bytes, host_basis = prior_host_bytes(known_bytes, host_guess_bytes), Basis.PRIOR
        host_bytes = max(host_bytes, MORE_OF_UNKNOWN * (predicted.host_above_bytes or 0))
    if predicted.gpu_held_bytes is not None:
        gpu_guess_bytes = math.ceil(predicted.gpu_held_bytes * OVER_PART)
    gpu_bytes, gpu_basis, sharing = _on_each_gpu(job, predicted, gpu_guess_bytes)
    busy = predicted.gpu_utilisation_frac
    shared_frac = UTILISATION_PRIOR if busy is None else busy
    return Demand(
        host_memory_bytes=host_bytes,
        cpus=resources.cpus,
        gpus=job.gpus,
        gpu_memory_bytes=gpu_bytes,
        sharing=sharing,
        gpu_utilisation_frac=shared_frac if sharing is Sharing.SHARED else 1.0,
        gpu_type=resources.gpu_type,
        ports=(*job.named_ports, *((ANY_PORT,) if needs_free_port(job.document()) else ())),
        disk_bytes=resources.disk or 0,
        may_borrow=job.preemptible and job.nodes == 1,
        host_memory_basis=host_basis,
        gpu_memory_basis=gpu_basis,
    )


def _on_each_gpu(
    job: TrainingJob, predicted: Prediction, guess_bytes: int | None
) -> tuple[int, Basis, Sharing]:
    """Memory of each GPU, where that comes from, and whether others may use the rest."""
    asked = job.resources
    if not job.gpus:
        return 0, Basis.DECLARED, asked.sharing
    if asked.gpu_memory is not None:
        return asked.gpu_memory, Basis.DECLARED, asked.sharing
    if predicted.gpu_peak_bytes is not None:
        return predicted.gpu_peak_bytes, Basis.PREDICTED, asked.sharing
    if predicted.gpu_above_bytes is not None:  # a larger one than ran out already
        return math.ceil(predicted.gpu_above_bytes * OVER_BOUND), Basis.PRIOR, Sharing.WHOLE
    if guess_bytes is not None:
        return guess_bytes, Basis.PRIOR, asked.sharing
    return 0, Basis.DECLARED if asked.sharing is Sharing.WHOLE else Basis.PRIOR, Sharing.WHOLE
