"""Peak memory before the start: an upper quantile to reserve, learnt recipe by recipe.

A peak is a sum: what the program needs anyway, and so much for each byte of
data set, sample in a batch, or parameter. The coefficients are positive and
pulled towards a prior; settings scale the whole by a power, pulled towards no
effect. The fit is on log memory with a loss that outliers cannot drag, and a
run killed for memory counts as what it is, a lower bound.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

from headway.estimate.encode import Floats
from headway.estimate.features import Configuration
from headway.units import GIB, MIB

QUANTILE = 0.99
"""Reserved: what one run in a hundred exceeds; such a run is retried with more."""
FEWEST_PEAKS = 3
"""With fewer traces of a recipe the prior is the better guess."""
FEWEST_NETWORKS = 5
"""Runs of fewer networks, however many, do not tell how networks differ from each other."""
BOUND_MARGIN = 1.15
"""A run killed at some size is given at least so much more."""
_USUAL_SPREAD, _USUAL_WEIGHT = 0.06, 3.0
"""Spread of log peaks of one recipe, and how many traces that belief is worth."""
_FAR_SPREAD = 0.15
"""Added spread for each doubling beyond what was seen."""
_ABSURD = math.log(4.0)
"""A peak this far from what the others of its recipe tell is no evidence …"""
_MOST_CREDIBLE = 0.7
"""… unless more than the rest of them are."""
_MOST_POWER = 2.0
"""No setting moves a peak by more than its square, or a wrong peak would be explained by it."""


@dataclass(frozen=True, slots=True)
class Peak:
    """One measured peak, or a lower bound of one."""

    configuration: Configuration
    peak_bytes: int
    lower_bound: bool = False


HOST_TERMS = {"base": 300.0 * MIB, "dataset_bytes": 3.0}
GPU_TERMS = {"base": 0.7 * GIB, "batch": 8.0 * MIB, "params": 16.0, "activations": 12.0}
"""What a peak is the sum of, and the bytes that one of each is expected to need."""
_POWERS = ("batch_size", "gpus", "data_threads", "cpus", "epochs")


def _quantity(name: str, known: Configuration) -> float | None:
    """The term or setting called *name*; None when it is not known."""
    if name == "activations":
        both = known.activations, known.batch_size
        return None if None in both else math.prod(each or 0.0 for each in both)
    if name in ("base", "batch"):
        return 1.0 if name == "base" else known.batch_size
    found: float | None = getattr(known, name, known.settings.get(name))
    return found


@dataclass(frozen=True)
class RecipeMemory:
    """The peaks of one recipe."""

    terms: tuple[str, ...]
    coefficients: Floats
    powers: dict[str, tuple[float, float]]
    """Exponent of each setting that matters, and its usual value."""
    spread: float
    """Standard deviation of log peaks around the fit."""
    freedom: float
    """Degrees of freedom behind `spread`."""
    usual: dict[str, tuple[float, float]]
    """Smallest and largest value seen of each term and setting."""
    bounds: tuple[tuple[float, float], ...]
    """Sizes (sum of the terms) at which runs were killed, and the bytes they had."""
    traces: int

    def median_bytes(self, known: Configuration) -> float:
        """The most likely peak."""
        values = [self._value(name, known) for name in self.terms]
        factor = 1.0
        for name, (power, usual) in self.powers.items():
            factor *= (max(self._value(name, known), 1e-9) / usual) ** power
        return float(np.dot(values, self.coefficients)) * factor

    def quantiles(self, known: Configuration, q: Sequence[float]) -> Floats:
        """Bytes that a share *q* of runs stays below, shape (quantiles,)."""
        beyond = 0.0
        for name in (*self.terms, *self.powers):
            read = _quantity(name, known)
            low, high = self.usual[name]
            if read is not None and read > 0 and low > 0:
                beyond += max(0.0, math.log2(read / high), math.log2(low / read))
        spread = math.hypot(self.spread, _FAR_SPREAD * beyond)
        return np.asarray(self.median_bytes(known) * np.exp(stdtrit(self.freedom, q) * spread))

    def upper_bytes(self, known: Configuration) -> int:
        """What to reserve: exceeded by one run in a hundred."""
        median, upper = map(float, self.quantiles(known, (0.5, QUANTILE)))
        killed = [held for size, held in self.bounds if size <= median * 1.05]
        return math.ceil(max([upper, *(held * BOUND_MARGIN for held in killed)]))

    def _value(self, name: str, known: Configuration) -> float:
        """The quantity *name*, or the largest seen where unknown: too much beats a killed run."""
        read = _quantity(name, known)
        return self.usual[name][1] if read is None else read


@dataclass(frozen=True)
class MemoryModel:
    """Peaks of all recipes, on the host or on a GPU."""

    recipes: dict[str, RecipeMemory] = field(default_factory=dict)

    @classmethod
    def fit(cls, peaks: Sequence[Peak], terms: Mapping[str, float]) -> "MemoryModel":
        """Learn from *peaks*; recipes are independent, so none can spoil another.

        Args:
            peaks: Of all recipes.
            terms: `HOST_TERMS` or `GPU_TERMS`.
        """
        by_recipe: dict[str, list[Peak]] = {}
        for peak in peaks:
            by_recipe.setdefault(peak.configuration.recipe, []).append(peak)
            if peak.configuration.activations is not None and "activations" in terms:
                by_recipe.setdefault("", []).append(peak)
        if len({p.configuration.network for p in by_recipe.get("", ())}) < FEWEST_NETWORKS:
            by_recipe.pop("", None)
        return cls(
            {
                name: _fit(each, terms)
                for name, each in by_recipe.items()
                if sum(not p.lower_bound for p in each) >= FEWEST_PEAKS
            }
        )

    def upper_bytes(self, known: Configuration) -> int | None:
        """What to reserve for *known*; None when no trace is like it."""
        recipe = self._recipe_for(known)
        return recipe.upper_bytes(known) if recipe else None

    def quantiles(self, known: Configuration, q: Sequence[float]) -> Floats | None:
        """Bytes that a share *q* of runs stays below; None when no trace is like it."""
        recipe = self._recipe_for(known)
        return recipe.quantiles(known, q) if recipe else None

    def _recipe_for(self, known: Configuration) -> RecipeMemory | None:
        """What is known of *known*'s recipe, or of networks in general when that may help."""
        own = self.recipes.get(known.recipe)
        if own is None and known.activations is not None and known.batch_size is not None:
            return self.recipes.get("")
        return own


def _fit(peaks: Sequence[Peak], terms: Mapping[str, float]) -> RecipeMemory:
    """The peaks of one recipe; at least `FEWEST_PEAKS` of them are measured."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - 0.2 s that predicting never needs

    columns = _columns(peaks, terms)
    columns = {
        n: v for n, v in columns.items() if n == "base" or np.ptp(v) > 0 or n == "dataset_bytes"
    }
    own = sorted({name for p in peaks for name in p.configuration.settings})
    settings = _columns(peaks, (*_POWERS, *own))
    settings = {n: v for n, v in settings.items() if np.ptp(v) > 0 and (v > 0).all()}
    if "batch" in terms:
        settings.pop("batch_size", None)  # a term already
    x = np.column_stack(list(columns.values()))
    usual = {n: float(np.exp(np.mean(np.log(v)))) for n, v in settings.items()}
    z = np.zeros((len(peaks), len(settings)))
    for position, (name, values) in enumerate(settings.items()):
        z[:, position] = np.log(values / usual[name])
    y = np.log([p.peak_bytes for p in peaks])
    bound = np.array([p.lower_bound for p in peaks])
    prior = np.log([terms[n] for n in columns])
    parts = x.shape[1]

    def gaps(packed: Floats) -> Floats:
        gap = np.log(x @ np.exp(packed[:parts])) + z @ packed[parts:] - y
        return np.asarray(np.where(bound, np.minimum(gap, 0.0), gap), dtype=np.float64)

    def residuals(packed: Floats) -> Floats:
        away = (packed[:parts] - prior) / 2.0, packed[parts:] / 0.3
        return np.concatenate([gaps(packed) / 0.1, *away])

    start = np.concatenate([prior, np.zeros(z.shape[1])])
    most = np.concatenate([np.full(parts, np.inf), np.full(z.shape[1], _MOST_POWER)])
    packed = least_squares(residuals, start, loss="soft_l1", bounds=(-most, most)).x
    credible = np.abs(gaps(packed)) <= _ABSURD
    measured = credible[~bound]  # of kills at a limit alone nothing is learnt
    enough = measured.sum() >= max(FEWEST_PEAKS, _MOST_CREDIBLE * len(measured))
    if not credible.all() and enough:
        return _fit([p for p, good in zip(peaks, credible, strict=True) if good], terms)
    fitted = np.log(x @ np.exp(packed[:parts])) + z @ packed[parts:]
    left = (y - fitted)[~bound]
    used = min(float(parts + z.shape[1]), len(left) / 2)
    freedom = len(left) - used + _USUAL_WEIGHT
    spread = math.sqrt((float(left @ left) + _USUAL_WEIGHT * _USUAL_SPREAD**2) / freedom)
    seen = {**columns, **settings}
    return RecipeMemory(
        terms=tuple(columns),
        coefficients=np.exp(packed[:parts]),
        powers={n: (float(g), usual[n]) for n, g in zip(settings, packed[parts:], strict=True)},
        spread=spread,
        freedom=freedom,
        usual={n: (float(v.min()), float(v.max())) for n, v in seen.items()},
        bounds=tuple(
            (float(np.exp(f)), float(p.peak_bytes))
            for f, p in zip(fitted, peaks, strict=True)
            if p.lower_bound
        ),
        traces=len(peaks),
    )


def _columns(peaks: Sequence[Peak], names: Iterable[str]) -> dict[str, Floats]:
    """Values of each quantity that every peak knows."""
    found = {}
    for name in names:
        values = [_quantity(name, p.configuration) for p in peaks]
        known = [v for v in values if v is not None]
        if len(known) == len(values):
            found[name] = np.array(known, dtype=np.float64)
    return found
