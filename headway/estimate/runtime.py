"""Time before the start: a Gaussian process on log time, with calibrated intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.estimate.encode import Encoder, Floats, State
from headway.estimate.features import Configuration
from headway.estimate.gp import GaussianProcess, Kernel

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


def kernel_for(encoder: Encoder, x: Floats) -> Kernel:
    """A kernel for the factors that *encoder* found, before it is tuned."""
    names = encoder.columns
    categories, n = len(encoder.categories), len(names)
    everything = tuple(range(n))
    terms = [everything]
    if categories:
        terms += [
            tuple(range(categories)),
            *((c, *range(categories, n)) for c in range(categories)),
        ]
    size = [-0.7]
    lengths = [0.0] * categories + [1.0] * (n - categories)
    theta = [0.0] + [-1.0] * (n - categories)
    for term in terms:
        theta += size + [lengths[c] for c in term]
    return Kernel(
        categorical=tuple(c < categories for c in range(n)),
        linear=tuple(range(categories, n)),
        terms=tuple(terms),
        centre=np.nanmean(x, axis=0),
        theta=np.array([*theta, -3.0]),
    )
