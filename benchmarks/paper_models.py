"""The models of AI Gauge (SBAC-PAD 2019), for comparison: tuned by 5-fold cross-validation.

Network and GPU type are one-hot, the rest are numbers; the target is log time
(raw time makes each of them worse: boosting 20.8 % instead of 11.4 %). The two
linear forms are the paper's: plain terms, and terms with their reciprocals;
cross-validation chooses.
"""

import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from headway.estimate.duration.time_model import Forecast
from headway.estimate.encode import Encoder, Floats
from headway.estimate.evaluation.evaluate import Fit, Predictor
from headway.estimate.features import Configuration

PAPER_MODELS = ("linear", "tree", "forest", "boosting", "mlp")


class Reciprocals(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Adds 1 / x of each column when asked: the paper's second linear form."""

    def __init__(self, *, added: bool = False) -> None:
        self.added = added

    def fit(self, x: Floats, y: object = None) -> "Reciprocals":  # noqa: ARG002 - scikit-learn's shape
        """Nothing is learnt from *x*."""
        self.n_features_in_ = x.shape[1]
        return self

    def transform(self, x: Floats) -> Floats:
        """*x*, and beside it 1 / (1 + 2ˣ) where reciprocals are added: columns are logarithms."""
        return np.hstack([x, 1.0 / (1.0 + np.exp2(x))]) if self.added else x


def _grids(seed: int) -> dict[str, tuple[Any, dict[str, list[Any]]]]:
    """Model and grid by name."""
    return {
        "linear": (
            Pipeline([("form", Reciprocals()), ("model", LinearRegression())]),
            {"form__added": [False, True]},
        ),
        "tree": (
            DecisionTreeRegressor(random_state=seed),
            {"max_depth": [6, 10, None], "min_samples_leaf": [1, 2, 4]},
        ),
        "forest": (
            RandomForestRegressor(n_estimators=100, random_state=seed),
            {"max_features": [0.5, 1.0], "min_samples_leaf": [1, 2]},
        ),
        "boosting": (
            GradientBoostingRegressor(n_estimators=400, subsample=0.7, random_state=seed),
            {"max_depth": [3, 5], "learning_rate": [0.05, 0.1]},
        ),
        "mlp": (
            Pipeline(
                [
                    ("scale", StandardScaler()),
                    ("model", MLPRegressor(solver="lbfgs", max_iter=1000, random_state=seed)),
                ]
            ),
            {"model__hidden_layer_sizes": [(32,), (32, 16)], "model__alpha": [0.01, 0.3]},
        ),
    }


class PaperModel:
    """One of the paper's models, fitted."""

    def __init__(
        self, name: str, configurations: Sequence[Configuration], seconds: Floats, seed: int = 0
    ) -> None:
        self._encoder = Encoder.fit(configurations)
        model, grid = _grids(seed)[name]
        folds = KFold(min(5, len(seconds)), shuffle=True, random_state=seed)
        search = GridSearchCV(model, grid, cv=folds, scoring="neg_mean_absolute_error")
        x = self._columns(configurations)
        self.model = _quietly(search, x, np.log(seconds)).best_estimator_
        low, high = np.log(seconds.min()), np.log(seconds.max())
        self._range = (low - 5.0, high + 5.0)
        """A straight line may run off; e⁵ beyond all that was seen is far enough."""

    def refitted(self, configurations: Sequence[Configuration], seconds: Floats) -> "PaperModel":
        """The same model with the same settings, fitted on other traces."""
        other = copy(self)
        other.model = _quietly(clone(self.model), self._columns(configurations), np.log(seconds))
        return other

    def predict(self, configurations: Sequence[Configuration]) -> Floats:
        """Seconds each of *configurations* would take."""
        found = self.model.predict(self._columns(configurations))
        return np.asarray(np.exp(np.clip(found, *self._range)), dtype=np.float64)

    def _columns(self, configurations: Sequence[Configuration]) -> Floats:
        """One-hot categories, then logarithms of the quantities, the unknown as -1."""
        x = self._encoder.encode(configurations)
        categories = self._encoder.categories.values()
        parts = [
            x[:, position][:, None] == np.arange(len(levels))[None, :]
            for position, levels in enumerate(categories)
        ]
        quantities = np.nan_to_num(x[:, len(categories) :], nan=-1.0)
        return np.hstack([np.ones((len(x), 1)), *parts, quantities]).astype(np.float64)


def _quietly(model: Any, x: Floats, y: Floats) -> Any:
    """*model*, fitted. Some stop at max_iter; cross-validation judges them as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y)


def paper_model(name: str, seed: int) -> Fit:
    """How the model called *name* is fitted, with an interval that the paper does not give."""

    def fit(configurations: Sequence[Configuration], seconds: Floats) -> Predictor:
        model = PaperModel(name, configurations, seconds, seed)
        width = _width(model, configurations, seconds, seed)

        def predict(asked: Sequence[Configuration]) -> Forecast:
            median = model.predict(asked)
            return Forecast(median, median / width, median * width)

        return predict

    return fit


def _width(
    model: PaperModel, configurations: Sequence[Configuration], seconds: Floats, seed: int
) -> float:
    """The factor that holds 80 % of the model's errors on a fifth that it was not fitted on.

    This is split conformal prediction with the least effort.
    """
    held = np.random.default_rng(seed).permutation(len(seconds))[: max(1, len(seconds) // 5)]
    kept = np.setdiff1d(np.arange(len(seconds)), held)
    twin = model.refitted([configurations[i] for i in kept], seconds[kept])
    error = np.abs(np.log(twin.predict([configurations[i] for i in held]) / seconds[held]))
    return float(np.exp(np.quantile(error, 0.8)))
