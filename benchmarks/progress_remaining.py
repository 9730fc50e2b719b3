"""Remaining time on made-up series: headway beside tqdm's and a moving average of ten.

    PYTHONPATH=. python benchmarks/progress_remaining.py [--runs 20] [--seed 1] [--family NAME]

Prints, for each family of series, the mean absolute relative error of the time
that is left in percent, over the whole run and after its first tenth, how often
the 80 % interval held the truth, and the same errors with a prior that is off by
about 30 %. In `slow_down` and `neighbour` the future changes without a sign
before: no method can know, and the table shows what that costs.
"""

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headway.estimate.remaining_replay import Scores, replay
from headway.estimate.remaining_series import Series

Array = npt.NDArray[np.float64]
METHODS = ("headway", "moving_average", "tqdm")


def noise(rng: np.random.Generator, n: int) -> Array:
    """Times that scatter by half a percent to twelve."""
    return np.exp(rng.normal(0.0, rng.uniform(0.005, 0.12), n))


def startup(rng: np.random.Generator, d: Array) -> Array:
    """The first iteration hundreds of times slower, a few more somewhat."""
    d[0] *= rng.uniform(100, 500)
    for i in range(1, int(rng.integers(1, 6))):
        d[i] *= rng.uniform(1, 20)
    return d


def steady(rng: np.random.Generator, n: int) -> Array:
    """Noise only."""
    return noise(rng, n)


def slow_start(rng: np.random.Generator, n: int) -> Array:
    """As real ResNet-50 runs."""
    return startup(rng, noise(rng, n))


def validation(rng: np.random.Generator, n: int) -> Array:
    """A pause after each epoch."""
    d = slow_start(rng, n)
    period = int(n / rng.integers(5, 60))
    at = d[period::period]
    at += period * rng.uniform(0.05, 0.3) * np.exp(rng.normal(0, 0.05, len(at)))
    return d


def checkpoints(rng: np.random.Generator, n: int) -> Array:
    """Pauses of two kinds, each with its own period."""
    d = validation(rng, n)
    period = int(n / rng.integers(5, 40))
    d[period::period] += rng.uniform(3, 40)
    return d


def hiccups(rng: np.random.Generator, n: int) -> Array:
    """Pauses of any length at any time."""
    d = slow_start(rng, n)
    at = rng.random(n) < rng.uniform(0.001, 0.02)
    return d + at * rng.pareto(2.5, n) * 5


def drift(rng: np.random.Generator, n: int) -> Array:
    """Slowly faster or slower."""
    return slow_start(rng, n) * np.linspace(1, rng.uniform(0.85, 1.2), n)


def slow_down(rng: np.random.Generator, n: int) -> Array:
    """At some moment slower for good."""
    d = slow_start(rng, n)
    d[int(rng.uniform(0.05, 0.6) * n) :] *= rng.uniform(1.3, 2.0)
    return d


def neighbour(rng: np.random.Generator, n: int) -> Array:
    """Slower while another job shares the node; with validation."""
    d = validation(rng, n)
    a = rng.uniform(0.1, 0.5)
    b = a + rng.uniform(0.05, 0.3)
    d[int(a * n) : int(b * n)] *= rng.uniform(1.2, 2.0)
    return d


def correlated(rng: np.random.Generator, n: int) -> Array:
    """Noise that remembers."""
    e = rng.normal(0, 0.03, n)
    x = np.zeros(n)
    for i in range(1, n):
        x[i] = 0.97 * x[i - 1] + 0.25 * e[i]
    return startup(rng, np.exp(x) * noise(rng, n))


def skewed(rng: np.random.Generator, n: int) -> Array:
    """Texts of different lengths."""
    return startup(rng, np.exp(rng.normal(0, rng.uniform(0.2, 0.5), n)))


def two_speeds(rng: np.random.Generator, n: int) -> Array:
    """A data loader that starves every k-th iteration."""
    d = noise(rng, n)
    d[:: int(rng.integers(2, 17))] *= rng.uniform(1.5, 12)
    return startup(rng, d)


def epochs(rng: np.random.Generator, _n: int) -> Array:
    """A few dozen reports, the first somewhat slower."""
    n = int(rng.integers(12, 60))
    d = np.exp(rng.normal(0, rng.uniform(0.005, 0.08), n))
    d[0] *= rng.uniform(1.0, 1.6)
    return d * 60


def epochs_neighbour(rng: np.random.Generator, n: int) -> Array:
    """The same, with a neighbour for a while."""
    d = epochs(rng, n)
    a = int(rng.uniform(0.1, 0.5) * len(d))
    d[a : a + int(rng.integers(2, 8))] *= rng.uniform(1.1, 1.5)
    return d


FAMILIES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    family.__name__: family
    for family in (
        *(steady, slow_start, validation, checkpoints, hiccups, drift, slow_down, neighbour),
        *(correlated, skewed, two_speeds, epochs, epochs_neighbour),
    )
}


def percent(scores: list[Scores]) -> str:
    """Two means, from the first iteration on and after a tenth."""
    first = 100 * np.mean([s.from_first for s in scores])
    later = 100 * np.mean([s.after_10_percent for s in scores])
    return f"{first:12.1f} /{later:6.2f}"


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--runs", type=int, default=20)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--family", choices=FAMILIES)
    options = ask.parse_args()
    print(
        f"{'family':18}" + "".join(f"{m:>20}" for m in METHODS) + "  in 80 %   with a prior ±30 %"
    )
    for name in [options.family] if options.family else FAMILIES:
        rng = np.random.default_rng(options.seed)
        rows: list[dict[str, Scores]] = []
        primed: list[Scores] = []
        for _ in range(options.runs):
            n = int(10 ** rng.uniform(2.5, 4))
            d = FAMILIES[name](rng, n) * rng.uniform(0.05, 1)
            series = Series(np.cumsum(d), np.arange(1.0, len(d) + 1), float(len(d)))
            prior_s = float(series.t_s[-1] * np.exp(rng.normal(0, 0.3)))
            rows.append(replay(series))
            primed.append(replay(series, prior_s)["headway"])
        line = "".join(percent([row[method] for row in rows]) for method in METHODS)
        held = 100 * np.mean([r["headway"].interval_coverage_frac or 0 for r in rows])
        print(f"{name:18}{line}{held:7.0f} %{percent(primed)}", flush=True)


if __name__ == "__main__":
    main()
