"""Time before the start: a Gaussian process on log time, with calibrated intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.estimate.encode import Encoder, Floats, State
from headway.estimate.features import Configuration
from headway.estimate.gp import GaussianProcess, Kernel

CHAMPION = "gp"
"""Name of the product's own model in evaluations."""
COVERAGE = 0.8
"""An interval holds the measured value so often."""


@dataclass(frozen=True)
class Forecast:
    """Median and interval, in seconds, one a configuration."""

    median_s: Floats
    low_s: Floats
    high_s: Floats


@dataclass(frozen=True)
class TimeModel:
    """Seconds of one unit, learnt from traces."""

    encoder: Encoder
    process: GaussianProcess
    stretch: float
    """Interval half-width in predicted standard deviations, from left-out errors."""

    @classmethod
    def fit(
        cls, configurations: Sequence[Configuration], seconds: Floats, seed: int = 0
    ) -> "TimeModel":
        """Learn from the *seconds* that *configurations* took, shape (n,)."""
        rng = np.random.default_rng(seed)
        encoder = Encoder.fit(configurations)
        x, y = encoder.encode(configurations), np.log(seconds)
        kernel = kernel_for(encoder, x).tuned(x, y - y.mean(), rng, iterations=60)
        process = GaussianProcess.fit(kernel, x, y, rng)
        error, deviation = process.left_out(x, y)
        return cls(encoder, process, conformal_stretch(error, deviation))

    def state(self) -> State:
        """The model as plain data."""
        return {
            "encoder": self.encoder.state(),
            "process": self.process.state(),
            "stretch": self.stretch,
        }

    @classmethod
    def from_state(cls, state: State) -> "TimeModel":
        """The model that gave *state*."""
        return cls(
            Encoder.from_state(state["encoder"]),
            GaussianProcess.from_state(state["process"]),
            state["stretch"],
        )

    def forecast(self, configurations: Sequence[Configuration]) -> Forecast:
        """What *configurations* would take."""
        mean, deviation = self.process.predict(self.encoder.encode(configurations))
        return Forecast(
            np.exp(mean),
            np.exp(mean - self.stretch * deviation),
            np.exp(mean + self.stretch * deviation),
        )


def conformal_stretch(error: Floats, deviation: Floats) -> float:
    """Half-width, in standard deviations, that would have held `COVERAGE` of left-out errors.

    The (n + 1) in the rank makes the promise hold for a trace yet to come
    (Lei et al., *Distribution-free predictive inference*, 2018).
    """
    scores = np.sort(np.abs(error) / deviation)
    rank = int(np.ceil(COVERAGE * (len(scores) + 1)))
    return float(scores[min(rank, len(scores)) - 1])


_WORKLOAD = ("network", "framework", "recipe")
_MACHINE = ("gpu_type", "precision")
_SCALE = ("gpus", "spread")
_PHYSICS_OF_NETWORKS = ("flops", "params", "activations", "layers")
_PHYSICS_OF_GPUS = ("gpu_flops_per_s", "gpu_bandwidth_bytes_per_s")


def kernel_for(encoder: Encoder, x: Floats) -> Kernel:
    """A kernel for the factors that *encoder* found, before it is tuned.

    Every term is a product over what runs (N), how it is set up (B), on which
    GPU (G) and on how many (C), from each alone to all at once. N and G stand
    for the names; the last terms know only the physics, so that a new network
    or GPU is like those that resemble it.
    """
    names = encoder.columns
    at = {name: i for i, name in enumerate(names)}

    def of(*wanted: str) -> tuple[int, ...]:
        return tuple(at[name] for name in wanted if name in at)

    n, g, c = of(*_WORKLOAD), of(*_MACHINE), of(*_SCALE)
    network, gpu = of(*_PHYSICS_OF_NETWORKS), of(*_PHYSICS_OF_GPUS)
    taken = {*n, *g, *c, *network, *gpu, *of("nodes")}
    b = tuple(i for i in range(len(names)) if i not in taken)
    wanted = [n, n + b, n + g, n + g + b, n + c, g + c, n + g + c, n + b + c, n + g + b + c]
    wanted += [network + b, network + gpu + b, network + g + b, gpu + b + c]
    terms = tuple(dict.fromkeys(term for term in wanted if term))
    quantities = tuple(range(len(encoder.categories), len(names)))
    categories = len(encoder.categories)
    theta = [0.0] + [-1.5] * len(quantities)
    for term in terms:
        theta += [-0.9] + [0.0 if i < categories else _LENGTHS.get(names[i], 1.0) for i in term]
    return Kernel(
        categorical=tuple(i < categories for i in range(len(names))),
        linear=quantities,
        terms=terms,
        centre=np.nan_to_num(np.nanmean(x, axis=0)) if len(names) else np.zeros(0),
        theta=np.array([*theta, -3.5]),
    )


_LENGTHS = {"gpus": 0.5}
"""Log length scales to start from, in powers of two of the quantity; 1 for all others."""
