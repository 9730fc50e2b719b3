"""Recorded series of runs: walked, and the remaining time scored that would have been shown."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from headway.estimate.remaining.history import Array
from headway.estimate.remaining.remaining_time import RemainingTime

MAX_MOMENTS = 1000
"""Of longer series so many evenly spaced moments are scored, unless told otherwise."""
_WALL_CLOCK_S = 1e8
"""A series that begins this late counts from 1970, not from its own start."""


@dataclass(frozen=True, slots=True)
class Series:
    """One run; all arrays have one length and rise."""

    t_s: Array
    """Seconds since the start of the run."""
    iteration: Array
    """Iterations done then; of epochs where the run reports nothing finer."""
    total: float
    """Iterations of the whole run."""
    epoch: Array | None = None
    """Epochs done then; None where the series does not say."""


def read_series(path: Path) -> Series:
    """The file at *path* with the columns t_s, iteration and perhaps total, epoch.

    Rows that bring no progress (a rank that said the same, a restart) are left out. Where no row
    has a total, the last iteration is it.
    """
    rows = pd.read_csv(path)
    total = rows["total"].max() if "total" in rows else 0.0
    rows = rows[rows["iteration"] > rows["iteration"].cummax().shift(fill_value=-1)]
    rows = rows[rows["t_s"] >= rows["t_s"].cummax()]
    t_s, iteration = rows["t_s"].to_numpy(float), rows["iteration"].to_numpy(float)
    if t_s[0] > _WALL_CLOCK_S:
        t_s = t_s - t_s[0]
    has_epochs = "epoch" in rows and rows["epoch"].notna().all()
    epoch = rows["epoch"].to_numpy(float) if has_epochs else None
    return Series(t_s, iteration, float(max(total, iteration[-1])), epoch)


@dataclass(frozen=True, slots=True)
class Scores:
    """Mean of |estimate - truth| / truth over a run."""

    from_first: float
    after_10_percent: float
    interval_coverage_frac: float | None = None
    """How often the 80 % interval held the truth, after the first tenth."""
    early_coverage_frac: float | None = None
    """The same before the first epoch ended, or in the first tenth where no epochs are known."""


def backtest(series: Series, prior_s: float | None = None, *, moments: int = MAX_MOMENTS) -> Scores:
    """Score headway's remaining time on one series.

    A moment is scored by what it says of the time from there to the end of
    the series. The last moment has nothing left and is not scored. "First
    tenth" means the first tenth of the total.

    Args:
        series: What was recorded.
        prior_s: Predicted runtime, if there was a prediction.
        moments: Of longer series so many evenly spaced moments are scored.
    """
    scored = scored_moments(series, moments)
    said, low, high = _walk(series, scored, prior_s)
    truth = series.t_s[-1] - series.t_s[scored]
    held = (low <= truth) & (truth <= high)
    late = series.iteration[scored] >= 0.1 * series.total
    early = ~late if series.epoch is None else _before_first_end(series.epoch)[scored]
    from_first, after_tenth = mean_errors(series, scored, said)
    return Scores(from_first, after_tenth, _share(held, late), _share(held, early))


def scored_moments(series: Series, most: int) -> npt.NDArray[np.intp]:
    """Rows of *series* that are scored: at most *most*, evenly spaced."""
    scored = np.flatnonzero((series.t_s < series.t_s[-1]) & (series.iteration > 0))
    if len(scored) > most:
        scored = scored[np.linspace(0, len(scored) - 1, most).astype(int)]
    return scored


def mean_errors(series: Series, scored: npt.NDArray[np.intp], said: Array) -> tuple[float, float]:
    """Mean relative error of *said*, over all *scored* moments and after the first tenth."""
    truth = series.t_s[-1] - series.t_s[scored]
    errors = np.abs(said - truth) / truth
    late = series.iteration[scored] >= 0.1 * series.total
    return (
        float(np.mean(errors)) if len(errors) else 0.0,
        float(np.mean(errors[late])) if late.any() else 0.0,
    )


def _share(held: npt.NDArray[np.bool_], part: npt.NDArray[np.bool_]) -> float | None:
    return float(np.mean(held[part])) if part.any() else None


def _before_first_end(epoch: Array) -> npt.NDArray[np.bool_]:
    """Which moments come before anything of a second epoch was seen."""
    return np.asarray(epoch <= np.floor(epoch[0]) + 1.0)


def _walk(series: Series, scored: npt.NDArray[np.intp], prior_s: float | None) -> Array:
    """What is said at each *scored* moment: remaining seconds and the interval's ends (3 rows)."""
    estimator = RemainingTime(prior_s)
    wanted = set(scored.tolist())
    said: list[tuple[float, float, float]] = []
    epochs = [None] * len(series.t_s) if series.epoch is None else series.epoch.tolist()
    rows = zip(series.t_s.tolist(), series.iteration.tolist(), epochs, strict=True)
    for row, (t_s, done, epoch) in enumerate(rows):
        estimator.update(t_s, done, series.total, epoch=epoch)
        if row in wanted:
            now = estimator.at(t_s)
            said.append((now.remaining_s or 0.0, now.low_s or 0.0, now.high_s or 0.0))
    return np.array(said).reshape(-1, 3).T
