"""Time before the start: Gaussian processes on log time, with calibrated intervals.

Several processes are averaged: one over the factors as they are, and some that
learn coordinates for systems (a GPU type in some number) and workloads (a
network at some batch size). They err differently, so the mean errs less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from headway.estimate.duration.batches import Batches
from headway.estimate.duration.gp import EXACT, GaussianProcess, left_out
from headway.estimate.duration.kernel import TUNED_ON, Kernel
from headway.estimate.duration.terms import embedded_kernel, plain_kernel, workload
from headway.estimate.duration.work import share, work
from headway.estimate.encode import UNSEEN, Encoder, Floats, centre_of
from headway.estimate.features import Configuration, Unit

CHAMPION = "gp"
"""Name of the product's own model in evaluations."""
COVERAGE = 0.8
"""An interval holds the measured value so often."""
SPAN = (0.1, 0.5, 0.9)
"""The quantiles of such an interval, the median between them."""
NOVELTIES = ("network", "gpu_type", "gpus")
"""What may be new in a configuration; its interval is then calibrated on groups left out."""
NEVER_COMPARED = {"network": np.log(3.5), "gpu_type": np.log(2.5), "gpus": np.log(1.3)}
"""Half-width that is added where something is new and the traces had one value of it alone: they
tell of no difference. As wide as intervals became where Gavel's groups were left out in turn."""
ITERATIONS = 25
"""Of the search for scales; more fit the noise, and flatter."""
TOO_FAR = 6.0
"""A trace so many standard deviations, and a factor `TOO_MUCH`, from all like it is no evidence."""
TOO_MUCH = np.log(8.0)
LIKE_IT = 2
"""At least so many others of its workload must say otherwise; a network alone contradicts none."""
MOST_WRONG = 1 / 3
"""What more than so many of the traces do is no error but how it is."""
_ENOUGH_TO_SPLIT = 40
_PARTS = 4
"""In which rows are held out to learn how sure the processes are."""
_FLATTERED = 1.2
"""By how much errors exceed left-out ones, where there are too few to hold some out."""
_GUESSED = np.log(1.6)
"""Half-width that is added for a new GPU of which only a relative's data sheet is known."""
_SLOPES = {"gpu_flops_per_s": -0.5, "gpu_bandwidth_bytes_per_s": -0.5}
"""Expected before any trace: time is the inverse of speed, be it of arithmetic or of memory."""


@dataclass(frozen=True)
class TimeModel:
    """Seconds of one unit, learnt from traces."""

    encoder: Encoder
    batches: Batches
    members: tuple[GaussianProcess, ...]
    centre: Floats
    """Mean of each column: where the expected slopes are zero."""
    stretches: dict[str, float]
    """Interval half-width in standard deviations, by what is new; under '' when nothing is."""
    known: dict[str, frozenset[str]]
    """Values of each of `NOVELTIES` that traces had."""
    recipes: frozenset[str] = frozenset()
    """Recipes of the traces."""
    ignored: int = 0
    """Traces left out as no evidence, because they contradict all that are like them."""
    by_work: float = 0.0
    """Power of what an iteration has to do that is expected of times, see `work`."""

    @classmethod
    def fit(
        cls,
        configurations: Sequence[Configuration],
        seconds: Floats,
        seed: int = 0,
        iterations: int = ITERATIONS,
        unit: Unit = Unit.ITERATION,
    ) -> "TimeModel":
        """Learn from the *seconds* that one *unit* of *configurations* took, shape (n,)."""
        rng = np.random.default_rng(seed)
        encoder, batches, x, y, centre, by_work = encoded(configurations, seconds, unit)
        plain = plain_kernel(encoder, x)
        credible = believable(plain, x, y, workload(encoder), rng)
        x, y = x[credible], y[credible]
        kernels = [plain, *embedded_kernel(encoder, x, seed)]
        tuned = [k.tuned(x, y - y.mean(), rng, iterations) for k in kernels]
        members = tuple(GaussianProcess.fit(k, x, y, rng) for k in tuned)
        shown = np.sort(rng.permutation(len(x))[:EXACT])
        stretches = _calibrate(encoder, tuned, x[shown], y[shown])
        if len(x) < _ENOUGH_TO_SPLIT:
            stretches[""] *= _FLATTERED
        elif len(x) <= 2 * TUNED_ON:  # else most rows were left out of the tuning anyway
            stretches[""] = max(stretches[""], _honest_stretch(kernels, x, y, rng, iterations))
        known = {
            name: frozenset(str(getattr(c, name)) for c in configurations) for name in NOVELTIES
        }
        recipes = frozenset(c.recipe for c in configurations)
        ignored = int((~credible).sum())
        return cls(encoder, batches, members, centre, stretches, known, recipes, ignored, by_work)

    def has(self, configuration: Configuration) -> bool:
        """Whether a trace of the same recipe was among those it learnt from."""
        return configuration.recipe in self.recipes

    def quantiles(
        self, configurations: Sequence[Configuration], q: Sequence[float] = SPAN
    ) -> Floats:
        """Seconds that *configurations* would take, shape (n, quantiles).

        Intervals are calibrated at 80 %; the quantiles *q* are where a normal distribution of log
        time has them that holds as much between 10 and 90 %.
        """
        x = self.encoder.encode(configurations)
        x = self.batches.relative(self.encoder, x, configurations)
        mean, deviation = self.members[0].predict(x)
        known = self.members[-1].kernel.knows(x)
        if known.any() and len(self.members) > 1:
            # Where coordinates were never learnt they would only mislead: the plain one answers.
            each = [member.predict(x[known]) for member in self.members]
            mean[known], deviation[known] = _together(each)
        mean = mean + _expected(self.encoder, x, self.centre)
        if self.by_work:
            mean = mean + self.by_work * work(configurations, _batch(self.encoder, x))
        new = [self._new(c) for c in configurations]
        usual = self.stretches[""]
        stretch = [max([usual, *(self.stretches.get(n, usual) for n in each)]) for each in new]
        unknown = [
            sum(NEVER_COMPARED[n] for n in each if n not in self.stretches or self._odd(n, c))
            for c, each in zip(configurations, new, strict=True)
        ]
        guessed = [
            _GUESSED * (c.gpu_is_guessed and "gpu_type" in each)
            for c, each in zip(configurations, new, strict=True)
        ]
        half = np.hypot(np.hypot(np.array(stretch) * deviation, unknown), guessed)
        reach = ndtri(np.asarray(q, dtype=np.float64)) / ndtri(SPAN[-1])
        return np.asarray(np.exp(mean[:, None] + half[:, None] * reach), dtype=np.float64)

    def _odd(self, new: str, configuration: Configuration) -> bool:
        """Whether traces of networks with known facts make it look surer than it is."""
        return bool(self.by_work) and new == "network" and configuration.flops is None

    def _new(self, configuration: Configuration) -> list[str]:
        """What no trace had; the widest interval that any of it calls for is given."""
        return [
            name
            for name, values in self.known.items()
            if str(getattr(configuration, name)) not in values
        ]


def encoded(
    configurations: Sequence[Configuration], seconds: Floats, unit: Unit = Unit.ITERATION
) -> tuple[Encoder, Batches, Floats, Floats, Floats, float]:
    """Encoder, batches, columns, log times less what is expected, the centre, power of the work.

    Work is that of an iteration: of an epoch or a run, which have any number of them, none is
    expected.
    """
    encoder, batches = Encoder.fit(configurations), Batches.fit(configurations)
    x = batches.relative(encoder, encoder.encode(configurations), configurations)
    centre = centre_of(x)
    y = np.log(seconds) - _expected(encoder, x, centre)
    to_do = work(configurations, _batch(encoder, x))
    by_work = share(to_do, y) if unit is Unit.ITERATION else 0.0
    return encoder, batches, x, y - by_work * to_do, centre, by_work


def _batch(encoder: Encoder, x: Floats) -> Floats:
    """The column of relative batches; zeros where all have the same."""
    at = encoder.columns
    return x[:, at.index("batch_size")] if "batch_size" in at else np.zeros(len(x))


def believable(
    kernel: Kernel, x: Floats, y: Floats, workload: tuple[int, ...], rng: np.random.Generator
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which traces to learn from: all but those that contradict every one like them.

    A poisoned trace also makes its neighbours look wrong, so the worst go
    first, and those that fit again once they are gone come back.

    Args:
        kernel: Not tuned yet.
        x: Configurations, shape (n, columns).
        y: Log times, less what is expected of them.
        workload: Columns in which traces that are alike agree.
        rng: For which rows of very many are looked at.
    """
    kept = np.ones(len(x), dtype=bool)
    _, group, count = np.unique(
        x[:, workload], axis=0, return_inverse=True, return_counts=True, equal_nan=True
    )
    judged = count[group.ravel()] > LIKE_IT
    for _ in range(6):
        rows = np.flatnonzero(kept)
        rows = rows if len(rows) <= EXACT else np.sort(rng.choice(rows, EXACT, replace=False))
        error, deviation = left_out(kernel, x[rows], y[rows])
        wrong = _absurd(error, deviation) & judged[rows]
        if not wrong.any():
            break
        worst = np.abs(error) >= 0.7 * np.abs(error[wrong]).max()
        kept[rows[wrong & worst]] = False
        if (~kept).mean() > MOST_WRONG:
            return np.ones_like(kept)
    gone = np.flatnonzero(~kept)
    if len(gone):
        mean, deviation = GaussianProcess.fit(kernel, x[kept], y[kept], rng).predict(x[gone])
        kept[gone[~_absurd(y[gone] - mean, deviation)]] = True
    return kept if (~kept).mean() <= MOST_WRONG else np.ones_like(kept)


def _absurd(error: Floats, deviation: Floats) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    size = np.abs(error)
    return np.asarray((size > TOO_FAR * deviation) & (size > TOO_MUCH))


def _expected(encoder: Encoder, x: Floats, centre: Floats) -> Floats:
    """Log time by the rule in `_SLOPES`, relative to the mean of all traces."""
    total = np.zeros(len(x))
    for name, slope in _SLOPES.items():
        if name in encoder.columns:
            column = encoder.columns.index(name)
            total += slope * np.log(2) * np.nan_to_num(x[:, column] - centre[column])
    return total


def _together(each: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of several predictions taken as one."""
    means = np.array([mean for mean, _ in each])
    variances = np.array([deviation**2 for _, deviation in each])
    return means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0))


def _calibrate(
    encoder: Encoder, kernels: Sequence[Kernel], x: Floats, y: Floats
) -> dict[str, float]:
    """Stretch by what is new, from errors on rows, and on whole groups, left out."""
    found = {"": conformal_stretch(*_together([left_out(k, x, y) for k in kernels]))}
    for name in NOVELTIES:
        if name not in encoder.columns:
            continue
        groups = np.nan_to_num(x[:, encoder.columns.index(name)], nan=UNSEEN)
        if len(np.unique(groups)) > 1:
            found[name] = conformal_stretch(*left_out(kernels[0], x, y, groups))
    return found


def _honest_stretch(
    kernels: Sequence[Kernel], x: Floats, y: Floats, rng: np.random.Generator, iterations: int
) -> float:
    """`conformal_stretch` by errors on rows that the scales were not tuned on.

    Leaving a row out after tuning flatters: its value helped to choose the scales.
    """
    part = rng.permutation(len(x)) % _PARTS
    errors, deviations = [], []
    for held in range(_PARTS):
        kept, asked = part != held, part == held
        mean = y[kept].mean()
        tuned = [k.tuned(x[kept], y[kept] - mean, rng, iterations) for k in kernels]
        members = [GaussianProcess.fit(k, x[kept], y[kept], rng) for k in tuned]
        said, deviation = _together([m.predict(x[asked]) for m in members])
        errors.append(y[asked] - said)
        deviations.append(deviation)
    return conformal_stretch(np.concatenate(errors), np.concatenate(deviations))


def conformal_stretch(error: Floats, deviation: Floats) -> float:
    """Half-width, in standard deviations, that would have held `COVERAGE` of left-out errors.

    The (n + 1) in the rank makes the promise hold for a trace yet to come
    (Lei et al., *Distribution-free predictive inference*, 2018).
    """
    scores = np.sort(np.abs(error) / deviation)
    rank = int(np.ceil(COVERAGE * (len(scores) + 1)))
    return float(scores[min(rank, len(scores)) - 1])
