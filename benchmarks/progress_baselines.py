"""What others would have shown as the remaining time: the paper's moving average, and tqdm."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.progress_backtest import Series, mean_errors, scored_moments

Array = npt.NDArray[np.float64]
NEWEST = 10
"""The paper's method: the mean of the last ten iteration times."""
TQDM_SMOOTHING = 0.3
"""tqdm's default weight of the newest reading."""


def moving_average(series: Series) -> Array:
    """Mean time of the last ten iterations, times the iterations left, at each row."""
    times = np.concatenate(([0.0], series.t_s))
    done = np.concatenate(([0.0], series.iteration))
    rows = np.arange(1, len(times))
    back = np.maximum(rows - NEWEST, 0)
    units = np.maximum(done[rows] - done[back], 1e-9)
    return np.asarray((times[rows] - times[back]) / units * (series.total - done[rows]))


def tqdm(series: Series) -> Array:
    """As tqdm shows it: units over seconds, both exponentially averaged and debiased."""
    guesses = np.zeros(len(series.t_s))
    mean_units = mean_s = last_t = last_done = 0.0
    pairs = zip(series.t_s.tolist(), series.iteration.tolist(), strict=True)
    for row, (t_s, done) in enumerate(pairs):
        mean_units += TQDM_SMOOTHING * (done - last_done - mean_units)
        mean_s += TQDM_SMOOTHING * (t_s - last_t - mean_s)
        last_t, last_done = t_s, done
        # The debiasing factor is the same above and below, and cancels.
        guesses[row] = (series.total - done) * mean_s / mean_units if mean_units > 0 else 0.0
    return guesses


BASELINES: dict[str, Callable[[Series], Array]] = {"moving_average": moving_average, "tqdm": tqdm}


def errors_of(baseline: str, series: Series, moments: int) -> tuple[float, float]:
    """Mean relative error of *baseline* over all scored moments, and after a tenth of the run."""
    scored = scored_moments(series, moments)
    return mean_errors(series, scored, BASELINES[baseline](series)[scored])
