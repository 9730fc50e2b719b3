"""GPU memory of a training before the first like it, by its network and batch. Cheap to import.

A sum, as a static count of a training step has it (Rajbhandari et al., ZeRO, 2020: sixteen bytes
for each parameter with Adam): what a process holds anyway, the parameters with gradients and
moments, and the outputs of layers that the way back needs, for each sample of the batch.
"""

import math
import re
from typing import NamedTuple

from headway.estimate.features import Configuration
from headway.estimate.physics import Tables, tokens_of
from headway.estimate.spread import Z80
from headway.units import GIB

_BASE_BYTES = 0.7 * GIB
"""CUDA's context, the libraries' workspaces, what the allocator holds back."""
_PARAMETER_BYTES = 16.0
"""Single precision: itself, its gradient, and Adam's two moments; which optimizer is not known."""
_ACTIVATION_BYTES = {"fp32": 12.0}
_HALF_ACTIVATION_BYTES = 6.0
"""For each output of a convolution or a linear layer; what follows such a layer is counted in.
Seven networks measured at fp32: 8 to 15; 72 networks of timm at amp, by the largest batch that
went into 24 GB: 5.8 in the middle (`benchmarks/gpu_memory_prior.py`)."""
_GROWS = frozenset({"pytorch", "torch", "lightning", "timm", "transformers", "huggingface"})
"""Frameworks that take memory as they need it; TensorFlow and JAX take what is there."""
_SPREAD = 0.3
"""Standard deviation of the logarithm between networks, by the same measurements."""
_Z99 = 2.33
_USUAL_SIDE = 224.0
_SIDES = re.compile(
    "--(?:image|img|imgs|input|crop|train-crop|resize)(?:-size)?|--resolution|--res"
)
"""Options by which trainers are told the side of an image."""


class GpuMemoryGuess(NamedTuple):
    """Bytes on each GPU: the median, an interval of 80 %, and what one run in a hundred exceeds."""

    median_bytes: int
    low_bytes: int
    high_bytes: int
    upper_bytes: int


def gpu_memory_guess(asked: Configuration, tables: Tables) -> GpuMemoryGuess | None:
    """What a training as *asked* holds on each of its GPUs.

    None where its framework, network or batch is not known, or the tokens of a sample of text.
    Larger images than usual count by the option that says so; smaller ones do not make it less.
    """
    if asked.framework not in _GROWS:
        return None
    known, network = tables.complete(asked), tables.network_facts(asked.network)
    if not (known.activations and known.params and known.batch_size) or asked.gpu_type == "cpu":
        return None
    if network is not None and network.tokens and tokens_of(asked.settings) is None:
        return None
    sides = [n for name, n in asked.settings.items() if _SIDES.fullmatch(name.replace("_", "-"))]
    larger = max(1.0, *(side / _USUAL_SIDE for side in sides), 1.0) ** 2
    each = _ACTIVATION_BYTES.get(known.precision, _HALF_ACTIVATION_BYTES)
    activations = known.activations * known.batch_size * larger * each
    median = _BASE_BYTES + known.params * _PARAMETER_BYTES + activations
    low, high, upper = (math.exp(z * _SPREAD) for z in (-Z80, Z80, _Z99))
    return GpuMemoryGuess(*(math.ceil(median * times) for times in (1.0, low, high, upper)))
