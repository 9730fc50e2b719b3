"""What an iteration has to do, on one usual GPU: what is expected before any trace.

The roofline model (Williams and others, 2009), as a sum: arithmetic, layers' outputs through
memory, parameters through memory, and the start of kernels. A network of which nothing is known
counts as a ResNet-50 at what is a usual batch for it.
"""

import math
from collections.abc import Sequence

import numpy as np

from headway.estimate.encode import Floats
from headway.estimate.features import Configuration

_USUAL_BATCH = 32
_FLOPS, _PARAMS, _ACTIVATIONS, _LAYERS = 4.1e9, 25.6e6, 11.1e6, 50.0
"""ResNet-50's, of one image."""
_FP32_FLOPS_PER_S, _HALF_FLOPS_PER_S, _BYTES_PER_S = 1e13, 4e13, 6e11
"""Of the usual GPU. Which one it is matters little: GPUs are told apart by `time_model`."""
_LAYER_S, _STEP_S = 1e-4, 1e-3
"""To start the kernels of a layer forward and back, and whatever a step does besides."""
_FAR = math.log(1000)
"""Work further from what is usual than so counts as so far: who claims more moves no power."""
_HUBER, _ROUNDS = 1.345, 20
"""Errors beyond so many standard deviations count in proportion to them alone (Huber, 1964), and
how often weights are found again."""
_LEAST_SD = 0.05
_PULL = 3.0
"""Evidence, in squares of log seconds, that times have nothing to do with it: a run's need not."""


def work(configurations: Sequence[Configuration], relative: Floats) -> Floats:
    """Log seconds, shape (n,).

    Args:
        configurations: Complete.
        relative: Of each the base-2 logarithm of its batch beside what is usual for its network;
            NaN where that cannot be told.
    """
    batches = _USUAL_BATCH * np.exp2(np.nan_to_num(relative))
    return np.array([_log_s(c, b) for c, b in zip(configurations, batches, strict=True)])


def share(work: Floats, log_s: Floats) -> float:
    """How far times go with *work*: the power of it, from 0 to 1, whatever a few rows say."""
    near = np.clip(work, np.median(work) - _FAR, np.median(work) + _FAR)
    weight, power = np.ones(len(work)), 0.0
    for _ in range(_ROUNDS):
        off = near - np.average(near, weights=weight)
        away = log_s - np.average(log_s, weights=weight)
        power = float(np.clip(weight @ (off * away) / (weight @ off**2 + _PULL), 0.0, 1.0))
        error = np.abs(away - power * off)
        usual = _HUBER * max(1.4826 * float(np.median(error)), _LEAST_SD)
        weight = usual / np.maximum(error, usual)
    return power


def _log_s(c: Configuration, usual_batch: float) -> float:
    half = c.precision != "fp32"
    samples = (c.batch_size or _USUAL_BATCH) if c.flops else usual_batch
    flops, layers = c.flops or _FLOPS, c.layers or _LAYERS
    # Forward, and twice as much back; an operation of the tables is a product and a sum.
    arithmetic = 6 * flops * samples / (_HALF_FLOPS_PER_S if half else _FP32_FLOPS_PER_S)
    outputs = c.activations or _ACTIVATIONS * (flops / _FLOPS) ** 0.8
    moved = (8 if half else 16) * outputs * samples + 16 * (c.params or _PARAMS)
    return math.log(arithmetic + moved / _BYTES_PER_S + _LAYER_S * layers + _STEP_S)
