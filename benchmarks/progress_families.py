"""Made-up families of runs for `progress_remaining`: those that were tuned on, and held-out ones.

A family draws one run's constants (noise, periods, lengths) and gives back a
`Draw`: it makes the iteration times of the run as they might go on from some
moment. What is settled by then stays (a neighbour that has come), what is not
is drawn anew. So a draw from the end is the run itself, and many draws from a
moment are all that even one who knows the family can know then: `oracle` makes
a lower bound of the error from them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Rng = np.random.Generator


class Now(NamedTuple):
    """The moment from which a run is drawn on."""

    done: int
    calm: bool = False
    """Nothing comes or goes any more: what is now stays to the end."""


Draw = Callable[[Rng, Now], Array]
Family = Callable[[Rng, int], Draw]

FUTURES = 60
"""Continuations the oracle draws at each moment."""


def oracle(draw: Draw, rng: Rng, now: Now) -> float:
    """The guess, in units of the run, with the least expected |guess - left| / left.

    That is the median of the times that may be left, each weighted by its inverse.
    """
    left = np.sort([float(draw(rng, now)[now.done :].sum()) for _ in range(FUTURES)])
    weight = np.cumsum(1.0 / left)
    return float(left[np.searchsorted(weight, 0.5 * weight[-1])])


def noise(rng: Rng, n: int) -> Draw:
    """Times that scatter by half a percent to twelve."""
    sd = rng.uniform(0.005, 0.12)
    return lambda rng, _: np.exp(rng.normal(0.0, sd, n))


def startup(rng: Rng, n: int, after: Draw | None = None) -> Draw:
    """The first iteration hundreds of times slower, a few more somewhat: real ResNet-50 runs."""
    usual = after or noise(rng, n)
    factors = [rng.uniform(100, 500), *rng.uniform(1, 20, int(rng.integers(0, 5)))]

    def draw(rng: Rng, now: Now) -> Array:
        d = usual(rng, now)
        d[: len(factors)] *= factors
        return d

    return draw


def validation(rng: Rng, n: int) -> Draw:
    """A pause after each epoch."""
    usual = startup(rng, n)
    period = int(n / rng.integers(5, 60))
    length = period * rng.uniform(0.05, 0.3)

    def draw(rng: Rng, now: Now) -> Array:
        d = usual(rng, now)
        at = d[period::period]
        at += length * np.exp(rng.normal(0, 0.05, len(at)))
        return d

    return draw


def checkpoints(rng: Rng, n: int) -> Draw:
    """Pauses of two kinds, each with its own period."""
    usual = validation(rng, n)
    period, length = int(n / rng.integers(5, 40)), rng.uniform(3, 40)

    def draw(rng: Rng, now: Now) -> Array:
        d = usual(rng, now)
        d[period::period] += length
        return d

    return draw


def hiccups(rng: Rng, n: int) -> Draw:
    """Pauses of any length at any time."""
    usual, rate = startup(rng, n), rng.uniform(0.001, 0.02)
    return lambda rng, now: usual(rng, now) + (rng.random(n) < rate) * rng.pareto(2.5, n) * 5


def drift(rng: Rng, n: int) -> Draw:
    """Slowly faster or slower."""
    usual, end = startup(rng, n), rng.uniform(0.85, 1.2)
    return lambda rng, now: usual(rng, now) * np.linspace(1, end, n)


def slow_down(rng: Rng, n: int) -> Draw:
    """At some moment slower for good."""
    return _slower_from(rng, startup(rng, n), n)


def _slower_from(rng: Rng, usual: Draw, n: int) -> Draw:
    change, factor = rng.uniform(0.05, 0.6), rng.uniform(1.3, 2.0)

    def draw(rng: Rng, now: Now) -> Array:
        d = usual(rng, now)
        at, slower = change, factor
        if now.done < change * n:
            at = 1.0 if now.calm else rng.uniform(max(0.05, now.done / n), 0.6)
            slower = rng.uniform(1.3, 2.0)
        d[int(at * n) :] *= slower
        return d

    return draw


def neighbour(rng: Rng, n: int) -> Draw:
    """Slower while another job shares the node; with validation."""
    return _slower_between(rng, validation(rng, n), n, (0.05, 0.3), (1.2, 2.0))


def _slower_between(
    rng: Rng, usual: Draw, n: int, lasts: tuple[float, float], slower: tuple[float, float]
) -> Draw:
    came, lasted, factor = rng.uniform(0.1, 0.5), rng.uniform(*lasts), rng.uniform(*slower)

    def draw(rng: Rng, now: Now) -> Array:
        a, b, f, at = came, came + lasted, factor, now.done / n
        if at < came:
            a, f = rng.uniform(max(0.1, at), 0.5), rng.uniform(*slower)
            a, b = (1.0, 1.0) if now.calm else (a, a + rng.uniform(*lasts))
        elif at < came + lasted:
            b = 1.0 if now.calm else came + rng.uniform(max(lasts[0], at - came), lasts[1])
        d = usual(rng, now)
        d[int(a * n) : int(b * n)] *= f
        return d

    return draw


def correlated(rng: Rng, n: int) -> Draw:
    """Noise that remembers for some thirty iterations."""

    def waves(rng: Rng, _: Now) -> Array:
        kernel = 0.25 * 0.97 ** np.arange(200)
        return np.exp(np.convolve(rng.normal(0, 0.03, n + 199), kernel, "valid"))

    scatter = noise(rng, n)
    return startup(rng, n, lambda rng, now: waves(rng, now) * scatter(rng, now))


def skewed(rng: Rng, n: int) -> Draw:
    """Texts of different lengths."""
    sd = rng.uniform(0.2, 0.5)
    return startup(rng, n, lambda rng, _: np.exp(rng.normal(0, sd, n)))


def two_speeds(rng: Rng, n: int) -> Draw:
    """A data loader that starves every k-th iteration."""
    usual, k, factor = noise(rng, n), int(rng.integers(2, 17)), rng.uniform(1.5, 12)

    def draw(rng: Rng, now: Now) -> Array:
        d = usual(rng, now)
        d[::k] *= factor
        return d

    return startup(rng, n, draw)


def epochs(rng: Rng, _n: int, n: int | None = None, slower: tuple[float, float] = (1, 1.6)) -> Draw:
    """A few dozen reports, the first somewhat slower."""
    n = n or int(rng.integers(12, 60))
    sd, first = rng.uniform(0.005, 0.08), rng.uniform(*slower)

    def draw(rng: Rng, _: Now) -> Array:
        d = 60 * np.exp(rng.normal(0, sd, n))
        d[0] *= first
        return d

    return draw


def epochs_neighbour(rng: Rng, _n: int) -> Draw:
    """The same, with a neighbour for a while."""
    n = int(rng.integers(12, 60))
    return _slower_between(rng, epochs(rng, 0, n), n, (2 / n, 8 / n), (1.1, 1.5))


TUNED: dict[str, Family] = {
    family.__name__: family
    for family in (
        *(noise, startup, validation, checkpoints, hiccups, drift, slow_down, neighbour),
        *(correlated, skewed, two_speeds, epochs, epochs_neighbour),
    )
}


# Held out: no constant of the estimator was chosen on what follows.


def mixture(rng: Rng, n: int) -> Draw:
    """A long slow start, heavy tails, validations, and rare hiccups, all at once."""
    slow = min(int(rng.integers(3, 21)), n // 20)
    factors = np.concatenate(([rng.uniform(50, 400)], np.geomspace(rng.uniform(2, 60), 1.1, slow)))
    sd, period = rng.uniform(0.01, 0.15), int(rng.integers(50, 501))
    length, rate = period * rng.uniform(0.02, 0.4), rng.uniform(0, 0.004)

    def draw(rng: Rng, _: Now) -> Array:
        d = np.exp(sd * np.clip(rng.standard_t(3, n), -8, 8))
        d[: len(factors)] *= factors
        d[period - 1 :: period] += length * np.exp(rng.normal(0, 0.1, len(d[period - 1 :: period])))
        return d + (rng.random(n) < rate) * rng.exponential(20, n)

    return draw


def mixture_slower(rng: Rng, n: int) -> Draw:
    """The mixture, and slower for good from some moment on."""
    return _slower_from(rng, mixture(rng, n), n)


def warm_up(rng: Rng, n: int) -> Draw:
    """Slower until the cache is warm: an exponential over a tenth of the run."""
    usual = mixture(rng, n)
    shape = 1 + rng.uniform(0.2, 1.5) * np.exp(-np.arange(n) / (n * rng.uniform(0.01, 0.06)))
    return lambda rng, now: usual(rng, now) * shape


def starved(rng: Rng, n: int) -> Draw:
    """Some iterations wait for data, at random, by very different times."""
    usual, share = noise(rng, n), rng.uniform(0.05, 0.5)
    shape, scale = rng.uniform(0.5, 2.0), rng.uniform(0.5, 6)
    wait: Draw = lambda rng, _: (rng.random(n) < share) * rng.gamma(shape, scale, n)  # noqa: E731
    return startup(rng, n, lambda rng, now: usual(rng, now) + wait(rng, now))


def buckets(rng: Rng, n: int) -> Draw:
    """Sequences sorted into a few lengths, in random order."""
    lengths = rng.uniform(0.3, 3, int(rng.integers(2, 7)))
    scatter = noise(rng, n)
    return startup(rng, n, lambda rng, now: rng.choice(lengths, n) * scatter(rng, now))


def longer_pauses(rng: Rng, n: int) -> Draw:
    """Validation every epoch, a longer one with a checkpoint at every few of them."""
    usual, period = startup(rng, n), int(max(n / rng.integers(10, 80), 10))
    every, length = int(rng.integers(3, 9)), period * rng.uniform(0.03, 0.2)
    longer = length * rng.uniform(2, 5)

    def draw(rng: Rng, now: Now) -> Array:
        d = usual(rng, now)
        d[period - 1 :: period] += length * np.exp(rng.normal(0, 0.1, len(d[period - 1 :: period])))
        d[period * every - 1 :: period * every] += longer
        return d

    return draw


def epochs_slow_first(rng: Rng, _n: int) -> Draw:
    """20 to 50 epochs, the first 1.2 to 3 times longer."""
    return epochs(rng, 0, int(rng.integers(20, 51)), (1.2, 3.0))


def epochs_drift(rng: Rng, _n: int) -> Draw:
    """20 to 50 epochs that get slower or faster by up to a fifth."""
    n = int(rng.integers(20, 51))
    usual, slope = epochs(rng, 0, n, (1.2, 3.0)), np.linspace(1, rng.uniform(0.85, 1.2), n)
    return lambda rng, now: usual(rng, now) * slope


HELD_OUT: dict[str, Family] = {
    family.__name__: family
    for family in (
        *(mixture, mixture_slower, warm_up, starved, buckets, longer_pauses),
        *(epochs_slow_first, epochs_drift),
    )
}
