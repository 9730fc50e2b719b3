"""What is learnt, as scikit-learn has it: rows of a frame in, seconds or bytes out.

    model = Estimator([("features", TraceFeatures()), ("runtime", Runtime())])
    cross_val_predict(model, X, y, cv=GroupKFold(5), groups=X["recipe"])

A row's columns are those of `headway.traces()` that are known before a run starts, and options of
its command, as columns that begin with ``--``. NaN is unknown; text may be pandas categories.
Production fits by these classes and keeps the numbers that they have learnt (`model_`, see
`store`): they predict without scikit-learn, whose import would double the start of a flow.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from headway.estimate.duration.time_model import ITERATIONS, SPAN, TimeModel
from headway.estimate.encode import Floats
from headway.estimate.features import Configuration, Unit
from headway.estimate.frame import KNOWN_BEFORE, configurations_of, frame_of
from headway.estimate.memory import GPU_TERMS, HOST_TERMS, MemoryModel, Peak
from headway.estimate.physics import Tables, shipped


class Estimator(Pipeline):  # type: ignore[misc]
    """A pipeline whose last step tells quantiles."""

    def predict_quantiles(self, X: Any, q: Sequence[float] = SPAN) -> Floats:
        """The quantiles *q* of each row, shape (n, quantiles)."""
        *before, (_, last) = self.steps
        for _, step in before:
            X = step.transform(X)
        return np.asarray(last.predict_quantiles(X, q), dtype=np.float64)


class TraceFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What was known before each run started, with the facts of its network and its GPU.

    Whatever else a frame has, such as measured times and peaks, is left out.
    """

    def __init__(self, tables: Tables | None = None) -> None:
        """Facts are of *tables*; of those that headway brings when None."""
        self.tables = tables

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's shape
        """Nothing is learnt."""
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """Completed rows, in the columns of `frame_of`."""
        known = [c for c in map(str, X) if c in KNOWN_BEFORE or c.startswith("--")]
        tables = self.tables or shipped()
        found = frame_of([tables.complete(c) for c in configurations_of(X[known])])
        return found.set_index(X.index)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class _OfRows(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Learns what is above zero from rows of which some columns may be unknown."""

    def predict(self, X: Any) -> Floats:
        """The median of each row, shape (n,)."""
        return np.asarray(self.predict_quantiles(X, (0.5,))[:, 0], dtype=np.float64)

    def _learnt_from(self, X: Any, y: ArrayLike) -> tuple[list[Configuration], Floats]:
        options: dict[str, Any] = {"dtype": None, "ensure_all_finite": "allow-nan"}
        rows, values = validate_data(self, X, y, y_numeric=True, ensure_min_samples=2, **options)
        values = np.asarray(values, dtype=np.float64)
        if not (values > 0).all():
            raise ValueError(f"y has {values.min():g}; give values above 0")
        return self._configurations(rows), values

    def _asked(self, X: Any) -> list[Configuration]:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=None, ensure_all_finite="allow-nan")
        return self._configurations(rows)

    def _configurations(self, rows: Any) -> list[Configuration]:
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(rows.shape[1])])
        return configurations_of(dict(zip(names, rows.T, strict=True)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        tags.target_tags.positive_only = True
        return tags


class Runtime(_OfRows):
    """Seconds of a run, an epoch or an iteration; one unit for all rows. See `TimeModel`."""

    def __init__(
        self,
        *,
        unit: str = Unit.ITERATION.value,
        max_iter: int = ITERATIONS,
        random_state: int = 0,
    ) -> None:
        """Of one *unit* each; *max_iter* steps at most are taken in the search for scales."""
        self.unit = unit
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn from the seconds *y*, shape (n,), of the rows of *X*."""
        known, seconds = self._learnt_from(X, y)
        self.model_ = TimeModel.fit(
            known, seconds, self.random_state, self.max_iter, Unit(self.unit)
        )
        self.n_iter_ = self.max_iter
        return self

    def predict_quantiles(self, X: Any, q: Sequence[float] = SPAN) -> Floats:
        """Seconds, shape (n, quantiles)."""
        asked = self._asked(X)
        return self.model_.quantiles(asked, q)


class SlowDown(Runtime):
    """How many times as long a step takes beside another program on its GPU as alone.

    That other's network and batch size are the columns `beside` and `beside_batch_size`. See
    `TimeModel`: whom a run shares its GPU with is part of the machine that it has.
    """

    unit = Unit.RUN.value  # of a ratio nothing is expected that is of seconds

    def __init__(self, *, max_iter: int = ITERATIONS, random_state: int = 0) -> None:
        """*max_iter* steps at most are taken in the search for scales."""
        self.max_iter = max_iter
        self.random_state = random_state

    def predict_quantiles(self, X: Any, q: Sequence[float] = SPAN) -> Floats:
        """Ratios of 1 and more, shape (n, quantiles): nobody is faster for a neighbour."""
        return np.maximum(super().predict_quantiles(X, q), 1.0)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # what lies below 1 is not told
        return tags


class HostMemory(_OfRows):
    """Peak bytes on a node, recipe by recipe. See `MemoryModel`."""

    _terms = HOST_TERMS

    def fit(self, X: Any, y: ArrayLike, lower_bound: Sequence[bool] | None = None) -> Self:
        """Learn from the peaks *y*, shape (n,), of the rows of *X*.

        Args:
            X: Rows.
            y: Bytes.
            lower_bound: Where true, the run was killed with so much and needed more.
        """
        known, peaks = self._learnt_from(X, y)
        bounds = [False] * len(known) if lower_bound is None else lower_bound
        told = [
            Peak(c, math.ceil(peak), bool(bound))
            for c, peak, bound in zip(known, peaks, bounds, strict=True)
        ]
        self.model_ = MemoryModel.fit(told, self._terms)
        self.usual_ = float(np.exp(np.log(peaks).mean())), float(np.log(peaks).std())
        return self

    def predict_quantiles(self, X: Any, q: Sequence[float] = SPAN) -> Floats:
        """Bytes, shape (n, quantiles); of a recipe that nothing is known of, those of all rows."""
        asked = self._asked(X)
        centre, spread = self.usual_
        usual = centre * np.exp(spread * ndtri(np.asarray(q)))
        said = (self.model_.quantiles(c, q) for c in asked)
        return np.array([usual if each is None else each for each in said], dtype=np.float64)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a power of what may be 0 is not learnt
        return tags


class GpuMemory(HostMemory):
    """Peak bytes on a GPU, recipe by recipe, and of networks of which their size is known."""

    _terms = GPU_TERMS
