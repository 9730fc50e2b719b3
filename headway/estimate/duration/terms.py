"""Which factors act together in a time: the shape of the kernels before they are tuned."""

import numpy as np

from headway.estimate.duration.kernel import Embedding, Kernel
from headway.estimate.encode import Encoder, Floats, centre_of

_WORKLOAD = ("network", "framework", "recipe")
_MACHINE = ("gpu_type", "beside", "beside_batch_size", "precision")
_SCALE = ("gpus", "spread")
_PHYSICS_OF_NETWORKS = ("flops", "params", "activations", "layers")
_PHYSICS_OF_GPUS = ("gpu_flops_per_s", "gpu_bandwidth_bytes_per_s")
_LENGTHS = {"gpus": 0.5}
"""Log length scales to start from, in powers of two of the quantity; 1 for all others."""
_FEWEST_REPEATS = 1.5
"""Coordinates are learnt only for combinations that recur so often on average."""


class _Factors:
    """Positions of the factors by what they describe."""

    def __init__(self, encoder: Encoder) -> None:
        names = encoder.columns
        at = {name: i for i, name in enumerate(names)}

        def of(*wanted: str) -> tuple[int, ...]:
            return tuple(at[name] for name in wanted if name in at)

        self.workload, self.machine, self.scale = of(*_WORKLOAD), of(*_MACHINE), of(*_SCALE)
        self.network, self.gpu = of(*_PHYSICS_OF_NETWORKS), of(*_PHYSICS_OF_GPUS)
        named = {*self.workload, *self.machine, *self.scale, *self.network, *self.gpu}
        self.setup = tuple(i for i in range(len(names)) if i not in named | {*of("nodes")})


def workload(encoder: Encoder) -> tuple[int, ...]:
    """Columns that say what runs: times of two workloads need not be alike at all."""
    return _Factors(encoder).workload


def plain_kernel(encoder: Encoder, x: Floats) -> Kernel:
    """Terms over what runs (N), how it is set up (B), on which GPU (G) and how many (C).

    They go from each alone to all at once. N and G stand for the names; the
    last terms know only the physics, so that a new network or GPU is like
    those that resemble it.
    """
    f = _Factors(encoder)
    n, b, g, c = f.workload, f.setup, f.machine, f.scale
    wanted = [n, n + b, n + g, n + g + b, n + c, g + c, n + g + c, n + b + c, n + g + b + c]
    wanted += [f.network + b, f.network + f.gpu + b, f.network + g + b]
    wanted += [f.gpu, n + f.gpu, c + f.gpu]
    return _kernel(encoder, x, wanted, ())


def embedded_kernel(encoder: Encoder, x: Floats, seed: int) -> list[Kernel]:
    """Kernels with learnt coordinates for systems and workloads; none where too few recur."""
    f = _Factors(encoder)
    systems, workloads = f.machine + f.scale, f.workload + f.setup
    if not (f.machine and f.scale and f.workload):
        return []
    categorical = tuple(i < len(encoder.categories) for i in range(len(encoder.columns)))
    found = []
    for member in range(2):
        pair = tuple(
            Embedding.fit(columns, x, categorical, 10 * seed + member)
            for columns in (systems, workloads)
        )
        if any(len(e.levels) * _FEWEST_REPEATS > len(x) for e in pair):
            return []
        z, u = len(encoder.columns), len(encoder.columns) + 1
        n, b = f.workload, f.setup
        wanted = [n, (z,), (u,), (z, u), (*n, z), (*n, z, *b), (*f.network, *b, z)]
        found.append(_kernel(encoder, x, wanted, pair))
    return found


def _kernel(
    encoder: Encoder,
    x: Floats,
    wanted: list[tuple[int, ...]],
    embeddings: tuple[Embedding, ...],
) -> Kernel:
    names, categories = encoder.columns, len(encoder.categories)
    terms = tuple(dict.fromkeys(term for term in wanted if term))
    quantities = tuple(range(categories, len(names)))
    theta = [0.0] + [-1.0] * len(quantities)
    for term in terms:
        theta.append(-0.9)
        for factor in term:
            sized = categories <= factor < len(names)
            theta.append(_LENGTHS.get(names[factor], 1.0) if sized else 0.0)
    return Kernel(
        categorical=tuple(i < categories for i in range(len(names))),
        linear=quantities,
        terms=terms,
        centre=centre_of(x),
        theta=np.array([*theta, -3.5]),
        embeddings=embeddings,
    )
