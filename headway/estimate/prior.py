"""What a job is taken to need: declared, else predicted, else the rule. Cheap to import.

The rule for host memory, ten times the data set, is what people who size such
jobs by hand allow: the raw bytes, the parsed columns, a training copy, and the
framework itself. A job of which not even that is known gets little host memory,
and more after it was killed for it; and a GPU to itself.
"""

import math

from headway.estimate.framework_memory import NOTHING_KNOWN, HostGuess
from headway.model.job import TrainingJob
from headway.model.lease import ANY_PORT, Basis, Demand, Sharing
from headway.model.run import Prediction
from headway.model.session import needs_free_port
from headway.units import MIB

HOST_FACTOR = 10
"""Bytes of host memory for each byte of data set."""
_LEAST_GUESS = HostGuess(512 * MIB, NOTHING_KNOWN)
LEAST_BYTES = 64 * MIB
"""The least that runs of before can say: next to a tighter bound a program that was changed a
little is killed, and nobody could use what is saved."""
MORE_OF_UNKNOWN = 2
"""Times what was not enough for a job of which nothing else is known."""
OVER_BOUND = 1.15
"""Times what was not enough: the least that is given next, where more is known."""
OVER_PART = 1.5
"""Times what a run held that was cut short: a validation or a longer sample may still come."""
UTILISATION_PRIOR = 0.5
"""Of a job that shares: two of them fit a GPU, until traces show what it uses."""


def prior_host_bytes(dataset_bytes: int | None, guess: HostGuess) -> HostGuess:
    """Host memory by the rule, or by what its program takes to begin with where that is more.

    Args:
        dataset_bytes: Size of the data set; None without one, or where its size is not known.
        guess: What the program takes.
    """
    by_rule = HOST_FACTOR * (dataset_bytes or 0)
    if by_rule <= guess.bytes_:
        return guess
    return HostGuess(by_rule, "the rule of ten times its data set: nothing like it has ended well")


def demand_for(
    job: TrainingJob,
    predicted: Prediction,
    dataset_bytes: int | None = None,
    *,
    host_guess: HostGuess = _LEAST_GUESS,
    gpu_guess_bytes: int | None = None,
) -> Demand:
    """What *job* needs on one node: declared, else *predicted*, else the rule.

    Args:
        job: What was asked for.
        predicted: Upper quantiles of its peaks, and its utilisation; a None in it falls to
            the rule.
        dataset_bytes: Measured size of its data set; the declared one when None.
        host_guess: See `framework_memory.host_guess`.
        gpu_guess_bytes: What its network and batch say of a GPU's memory; None where nothing.
            What a run like it held that was cut short says more.

    Returns:
        A demand whose bases say where each number comes from.
    """
    resources, why = job.resources, ""
    known_bytes = job.declared_data_bytes if dataset_bytes is None else dataset_bytes
    if resources.host_memory != "auto":
        host_bytes, host_basis = resources.host_memory, Basis.DECLARED
    elif predicted.host_peak_bytes is not None:
        host_bytes = max(predicted.host_peak_bytes, LEAST_BYTES)
        host_basis = Basis.PREDICTED
    else:
        (host_bytes, why), host_basis = prior_host_bytes(known_bytes, host_guess), Basis.PRIOR
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
        host_memory_basis=host_basis,
        host_memory_why=why,
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
