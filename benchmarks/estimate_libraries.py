"""Kept libraries in the place of parts of headway's own: both measured in one run.

    pip install --target .venv/libraries --no-deps mapie crepes lifelines autograd \
        autograd-gamma formulaic interface-meta wrapt
    PYTHONPATH=.:.venv/libraries python benchmarks/estimate_libraries.py TRACES.csv

Intervals: of rows held out, by the same fits, stretched by headway, MAPIE and crepes, and by
scikit-learn's boosting of quantiles. Survival: what the estimator of Kaplan and Meier says.
Figures that have no unit are by those of headway.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import CensoredData, ecdf
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from benchmarks.held_out import Rows, model_of
from headway.estimate.candidates import Encoded
from headway.estimate.duration.time_model import COVERAGE, SPAN
from headway.estimate.encode import Floats
from headway.estimate.evaluation.evaluate import HeldOut, score
from headway.estimate.physics import shipped
from headway.estimate.regressors import Estimator, TraceFeatures
from headway.estimate.spread import Z80
from headway.estimate.survival import Survival
from headway.estimate.trace_files import parse

_INNER = 4
"""Parts of what is seen in which a library finds the errors that it goes by; so does headway."""
_fits: dict[bytes, Estimator] = {}


class Logs(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Log seconds by headway's own process; the same rows are fitted once, whoever asks."""

    def fit(self, seen: pd.DataFrame, logs: Floats) -> Self:
        """Learn from the log seconds *logs*, shape (n,)."""
        rows = np.asarray(seen.index).tobytes()
        if rows not in _fits:
            _fits[rows] = model_of(shipped(), 0).fit(seen, np.exp(logs))
        self.model_ = _fits[rows]
        return self

    def predict(self, asked: pd.DataFrame) -> Floats:
        """Log seconds, shape (n,)."""
        return self.both(asked)[0]

    def both(self, asked: pd.DataFrame) -> tuple[Floats, Floats]:
        """Log seconds, and the standard deviation that headway gives them."""
        low, middle, high = np.log(self.model_.predict_quantiles(asked)).T
        return middle, (high - low) / (2 * Z80)


def ours(seen: pd.DataFrame, y: Floats, asked: pd.DataFrame) -> Floats:
    """Log of low, median and high, shape (n, 3)."""
    return np.asarray(np.log(Logs().fit(seen, y).model_.predict_quantiles(asked)))


def by_crepes(seen: pd.DataFrame, y: Floats, asked: pd.DataFrame) -> Floats:
    """The same, stretched by errors on parts of *seen* by their deviations."""
    from crepes import ConformalRegressor  # type: ignore[import-not-found]

    errors, sds = np.zeros(len(y)), np.zeros(len(y))
    for kept, held in _inner().split(seen):
        said, sds[held] = Logs().fit(seen.iloc[kept], y[kept]).both(seen.iloc[held])
        errors[held] = y[held] - said
    middle, sd = Logs().fit(seen, y).both(asked)
    found = ConformalRegressor().fit(errors, sigmas=sds)
    low, high = found.predict_int(middle, sigmas=sd, confidence=COVERAGE).T
    return np.column_stack([low, middle, high])


def by_mapie(seen: pd.DataFrame, y: Floats, asked: pd.DataFrame) -> Floats:
    """The same by jackknife+ over parts of *seen*: it knows no deviation that a model tells."""
    from mapie.regression import CrossConformalRegressor  # type: ignore[import-not-found]

    found = CrossConformalRegressor(Logs(), confidence_level=COVERAGE, cv=_inner())
    middle, ends = found.fit_conformalize(seen, y).predict_interval(asked)
    return np.column_stack([ends[:, 0, 0], middle, ends[:, 1, 0]])


def by_boosting(seen: pd.DataFrame, y: Floats, asked: pd.DataFrame) -> Floats:
    """scikit-learn's boosting of each quantile."""
    found = []
    for share in SPAN:
        trees = HistGradientBoostingRegressor(
            loss="quantile", quantile=share, min_samples_leaf=5, random_state=0
        )
        model = make_pipeline(TraceFeatures(shipped()), Encoded(), clone(trees))
        found.append(model.fit(seen, y).predict(asked))
    return np.sort(np.column_stack(found), axis=1)


def intervals(rows: Rows) -> None:
    """A row for each: errors in per cent, in 80 %, width; and both widths and time by ours."""
    by: dict[str, Callable[[pd.DataFrame, Floats, pd.DataFrame], Floats]] = {
        "headway": ours, "crepes": by_crepes, "MAPIE": by_mapie, "boosting": by_boosting,
    }  # fmt: skip
    logs, base = np.log(rows.seconds), math.nan
    print("| interval by | mean | median | in 80 % | log width | by headway's |")
    print(f"|{'---|' * 6}")
    for name, told in by.items():
        said = np.zeros((len(logs), len(SPAN)))
        for kept, held in KFold(5, shuffle=True, random_state=0).split(rows.X):
            said[held] = told(rows.X.iloc[kept], logs[kept], rows.X.iloc[held])
        got = score(HeldOut(rows.seconds, np.exp(said)))
        width = float(np.median(said[:, 2] - said[:, 0]))
        base = width if name == "headway" else base
        errors = f"{got.mean_relative_error:.1%} | {got.median_relative_error:.1%}"
        widths = f"{got.coverage_80_frac:.1%} | {width:.3f} | {width / base:.2f}"
        print(f"| {name} | {errors} | {widths} |", flush=True)


def survival(rows: Rows) -> None:
    """How far quantiles of others lie from headway's, and how much longer the same takes them."""
    from lifelines import KaplanMeierFitter  # type: ignore[import-not-found]

    rng = np.random.default_rng(0)
    ends = rng.choice(rows.seconds, len(rows.seconds)) * rng.uniform(0.5, 2.0, len(rows.seconds))
    over, lasted = rows.seconds <= ends, np.minimum(rows.seconds, ends)
    shares = np.linspace(0.05, 0.6, 12)

    def own() -> list[Any]:
        found = Survival.of(zip(lasted.tolist(), over.tolist(), strict=True))
        return [found.quantile(share) for share in shares]

    def of_lifelines() -> list[Any]:
        found = KaplanMeierFitter().fit(lasted, over)
        return [found.percentile(1.0 - share) for share in shares]

    def of_scipy() -> list[Any]:
        found = ecdf(CensoredData(uncensored=lasted[over], right=lasted[~over])).cdf
        at = np.searchsorted(found.probabilities, shares - 1e-12)
        return list(found.quantiles[at])

    mine_s, mine = _timed(own)
    print(f"\n{len(over)} rows, {np.mean(~over):.0%} of them not over\n")
    print("| Kaplan and Meier by | quantiles apart | time by headway's |\n|---|---|---|")
    for name, call in (("lifelines", of_lifelines), ("scipy.stats", of_scipy)):
        took_s, said = _timed(call)
        apart = max(abs(a / b - 1) for a, b in zip(mine, said, strict=True))
        print(f"| {name} | {apart:.2%} at most | {took_s / mine_s:.1f} |")


def _timed(call: Callable[[], list[Any]]) -> tuple[float, list[Any]]:
    call()
    began_s = time.process_time()
    found = [call() for _ in range(20)]
    return time.process_time() - began_s, found[-1]


def _inner() -> KFold:
    return KFold(_INNER, shuffle=True, random_state=1)


PARTS = {"intervals": intervals, "survival": survival}


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--part", choices=PARTS, action="append")
    asked = parser.parse_args()
    traces = parse(asked.traces.read_bytes(), asked.traces.name, "benchmark").traces
    rows, _ = Rows.of(traces).believable(shipped(), 0)
    with threadpool_limits(1):
        for part in asked.part or PARTS:
            PARTS[part](rows)


if __name__ == "__main__":
    main()
