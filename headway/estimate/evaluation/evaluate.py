"""How well times are predicted that were not learnt from: by scikit-learn's splits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from headway.estimate.duration.time_model import SPAN
from headway.estimate.encode import Floats

Split = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Positions of the rows that are seen, and of those that are held out."""
_MOST = np.log(8.0)
"""An error of a logarithm counts as this at most: what is wrong by more is just wrong."""


@dataclass(frozen=True, slots=True)
class Score:
    """How one model did on all held-out rows. Relative error is |predicted / measured - 1|."""

    mean_relative_error: float
    median_relative_error: float
    within_10_frac: float
    coverage_80_frac: float
    """Share of measured times inside the 80 % interval."""
    width_80: float
    """Median of the interval's upper end over its lower end."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Predictions of rows that were held out, in the order of the rows."""

    measured_s: Floats
    said_s: Floats
    """Low, median and high, shape (n, 3)."""


def said_of(model: Any, X: pd.DataFrame, seconds: Floats, splits: Iterable[Split]) -> Floats:
    """What fits of *model* on the one part of each split say of the other, shape (n, 3).

    Rows that no split asks for are NaN. On one core: threads that spin for a core which a training
    job uses slow both down. scikit-learn's `cross_val_predict` knows no quantiles, and no splits
    that go forward in time.
    """
    said = np.full((len(X), len(SPAN)), np.nan)
    with threadpool_limits(1):
        for seen, held in splits:
            fitted = clone(model).fit(X.iloc[seen], seconds[seen])
            said[held] = fitted.predict_quantiles(X.iloc[held])
    return said


def score(held: HeldOut) -> Score:
    """The figures of *held*."""
    low_s, median_s, high_s = held.said_s.T
    error = np.abs(median_s / held.measured_s - 1)
    inside = (low_s <= held.measured_s) & (held.measured_s <= high_s)
    return Score(
        mean_relative_error=float(error.mean()),
        median_relative_error=float(np.median(error)),
        within_10_frac=float((error <= 0.10).mean()),
        coverage_80_frac=float(inside.mean()),
        width_80=float(np.median(high_s / low_s)),
    )


def log_errors(held: HeldOut) -> Floats:
    """|log(predicted / measured)| of each row, bounded."""
    return np.minimum(np.abs(np.log(held.said_s[:, 1] / held.measured_s)), _MOST)
