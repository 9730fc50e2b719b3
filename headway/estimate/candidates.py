"""Who may predict times besides the product's own process: scikit-learn's, each a pipeline.

`tournament` lets them meet every night; what an operator installs under the entry point group
`headway.estimators` meets them too.
"""

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, StackingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted

from headway.errors import EstimatorDamaged
from headway.estimate.duration.time_model import CHAMPION, SPAN
from headway.estimate.encode import Encoder, Floats
from headway.estimate.features import Configuration, Unit
from headway.estimate.frame import TEXTS, configurations_of
from headway.estimate.regressors import Estimator, Runtime
from headway.estimate.winners import Learn, kept

log = logging.getLogger(__name__)

MOST_ROWS = 1000
"""Others than headway's own process learn from so many at most: some take their cube in time."""
FOLDS = 3
"""In which a median's errors are found, by which its interval goes."""


class Encoded(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Codes of categories and base-2 logarithms of quantities, always in the same columns."""

    def fit(self, X: pd.DataFrame, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's shape
        """Learn in which columns the rows differ."""
        encoder = Encoder.fit(configurations_of(X))
        self.categories_, self.quantities_ = encoder.categories, encoder.quantities
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """NaN is unknown; -1 a category that was not there."""
        encoder = Encoder(self.categories_, self.quantities_)
        found = encoder.encode(configurations_of(X))
        return pd.DataFrame(found, columns=[*encoder.columns], index=X.index)


class Physics(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Log seconds that arithmetic and memory would take at the peak, and on how many GPUs.

    What a fit adds is the efficiency that is reached: a constant, and slopes beside 1. The roofline
    model (Williams and others, 2009).
    """

    def fit(self, X: pd.DataFrame, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's shape
        """Nothing is learnt."""
        return self

    def transform(self, X: pd.DataFrame) -> Floats:
        """Shape (n, 5); NaN is unknown."""
        return np.array([_roofline(c) for c in configurations_of(X)], dtype=np.float64)


class OnLogs(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Log seconds by any regressor, with the interval that held of rows it was not fitted on."""

    def __init__(self, regressor: Any = None) -> None:
        """*regressor* is of scikit-learn's kind."""
        self.regressor = regressor

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Self:
        """Learn from the seconds *y*, shape (n,)."""
        logs = np.log(np.asarray(y, dtype=np.float64))
        folds = KFold(min(FOLDS, len(logs)), shuffle=True, random_state=0)
        away = np.abs(cross_val_predict(self.regressor, X, logs, cv=folds) - logs)
        # A line may run off; e⁵ beyond all that was seen is far enough.
        self.least_, self.most_ = float(logs.min() - 5.0), float(logs.max() + 5.0)
        rank = min(1.0, SPAN[-1] * (1 + 1 / len(logs)) - SPAN[0])
        self.half_ = float(np.quantile(away, rank))
        self.regressor_ = clone(self.regressor).fit(X, logs)
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Seconds, shape (n,)."""
        return np.asarray(self.predict_quantiles(X, (0.5,))[:, 0], dtype=np.float64)

    def predict_quantiles(self, X: pd.DataFrame, q: Sequence[float] = SPAN) -> Floats:
        """Seconds, shape (n, quantiles)."""
        check_is_fitted(self)
        middle = np.clip(self.regressor_.predict(X), self.least_, self.most_)
        reach = self.half_ * ndtri(np.asarray(q)) / ndtri(SPAN[-1])
        return np.asarray(np.exp(middle[:, None] + reach), dtype=np.float64)


def categories_of(X: pd.DataFrame) -> list[str]:
    """Columns that hold codes."""
    return [name for name in map(str, X) if name in {*TEXTS, "spread"}]


def quantities_of(X: pd.DataFrame) -> list[str]:
    """All others."""
    return [name for name in map(str, X) if name not in {*TEXTS, "spread"}]


def candidates(unit: Unit = Unit.ITERATION) -> dict[str, Estimator]:
    """By name who tells the time of a *unit*; each takes rows as `TraceFeatures` gives them."""
    linear = make_pipeline(Physics(), _scaled(), RidgeCV(np.logspace(-3, 2, 6)))
    near = _numbers(KNeighborsRegressor(3, weights="distance", algorithm="brute"))
    few = HistGradientBoostingRegressor(max_iter=50, random_state=0, min_samples_leaf=5)
    trees = make_pipeline(Encoded(), few)
    stack = StackingRegressor(
        [("trees", trees), ("near", near), ("physics", linear)], RidgeCV(), cv=FOLDS
    )
    scales = ConstantKernel() * Matern(nu=1.5) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(scales, normalize_y=True, random_state=0)
    middle = clone(few).set_params(loss="quantile", quantile=SPAN[1], max_iter=100)
    others = {
        "boosting": make_pipeline(Encoded(), middle),
        "sklearn-gp": _numbers(process),
        "physics": linear,
        "nearest": near,
        "stack": stack,
    }
    found = {name: Estimator([("model", OnLogs(each))]) for name, each in others.items()}
    return {CHAMPION: Estimator([("model", Runtime(unit=unit))]), **found}


def fitted(
    names: Iterable[str], X: pd.DataFrame, y: Floats, learn: Learn | None
) -> dict[str, bytes]:
    """Those of *names* that are not headway's own process, as `kept`, learnt from *X* and *y*.

    One that fails is left out; *learn* fits those that are not of `candidates`.
    """
    own, found = candidates(), {}
    if len(X) > MOST_ROWS:
        at = np.sort(np.random.default_rng(0).choice(len(X), MOST_ROWS, replace=False))
        X, y = X.iloc[at], y[at]
    for name in set(names) - {CHAMPION}:
        try:
            with quietly():
                data = kept(own[name].fit(X, y)) if name in own else learn and learn(name, X, y)
        except (ValueError, ArithmeticError, MemoryError, EstimatorDamaged) as error:
            log.warning("%s does not learn from %d rows: %s", name, len(X), error)
            continue
        if data:
            found[name] = data
    return found


@contextmanager
def quietly() -> Iterator[None]:
    """Without warnings of searches that stop early and columns without a value: scores judge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _numbers(regressor: Any) -> Any:
    """*regressor* on columns without categories and holes."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), categories_of),
        (_scaled(), quantities_of),
    )
    return make_pipeline(Encoded(), columns, regressor)


def _scaled() -> Any:
    return make_pipeline(
        SimpleImputer(keep_empty_features=True, add_indicator=True), StandardScaler()
    )


def _roofline(c: Configuration) -> list[float]:
    samples = c.batch_size or 1.0
    times = [
        c.flops and c.gpu_flops_per_s and 3.0 * c.flops * samples / c.gpu_flops_per_s,
        c.activations
        and c.gpu_bandwidth_bytes_per_s
        and 12.0 * c.activations * samples / c.gpu_bandwidth_bytes_per_s,
        c.params and c.gpu_bandwidth_bytes_per_s and 16.0 * c.params / c.gpu_bandwidth_bytes_per_s,
        float(max(c.gpus, 1)),
        c.iterations_in_all() or c.epochs,
    ]
    return [np.log(each) if each else np.nan for each in times]
