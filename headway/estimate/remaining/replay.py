"""Walks a recorded series and scores the remaining time that would have been shown."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.estimate.remaining.history import Array
from headway.estimate.remaining.model import RemainingTime
from headway.estimate.remaining.series import Series

MOVING_AVERAGE = 10
"""The paper's method: the mean of the last ten iteration times."""
TQDM_SMOOTHING = 0.3
"""tqdm's default weight of the newest reading."""
MAX_POINTS = 1000
"""Of longer series so many evenly spaced moments are scored, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Mean of |estimate - truth| / truth over a run."""

    from_first: float
    after_10_percent: float
    interval_coverage_frac: float | None = None
    """How often the 80 % interval held the truth, after the first tenth."""
    early_coverage_frac: float | None = None
    """The same before the first epoch ended, or in the first tenth where no epochs are known."""


def replay(
    series: Series, prior_s: float | None = None, *, moments: int = MAX_POINTS
) -> dict[str, Scores]:
    """Score headway, the moving average and tqdm on one series.

    A moment is scored by what it says of the time from there to the end of
    the series. The last moment has nothing left and is not scored. "First
    tenth" means the first tenth of the total.

    Args:
        series: What was recorded.
        prior_s: Predicted runtime, if there was a prediction.
        moments: Of longer series so many evenly spaced moments are scored.
    """
    times, done, total = series.t_s, series.iteration, series.total
    truth = times[-1] - times
    scored = np.flatnonzero((truth > 0) & (done > 0))
    if len(scored) > moments:
        scored = scored[np.linspace(0, len(scored) - 1, moments).astype(int)]
    late = done[scored] >= 0.1 * total
    scores = {}
    for name, guesses in (
        ("moving_average", _moving_average(times, done, total)[scored]),
        ("tqdm", _tqdm(times, done, total)[scored]),
    ):
        errors = np.abs(guesses - truth[scored]) / truth[scored]
        scores[name] = Scores(*_means(errors, late))
    said, low, high = _headway(series, scored, prior_s)
    errors = np.abs(said - truth[scored]) / truth[scored]
    held = (low <= truth[scored]) & (truth[scored] <= high)
    early = ~late if series.epoch is None else _before_first_end(series.epoch)[scored]
    covered, at_first = (
        float(np.mean(held[part])) if part.any() else None for part in (late, early)
    )
    return {"headway": Scores(*_means(errors, late), covered, at_first), **scores}


def _before_first_end(epoch: Array) -> npt.NDArray[np.bool_]:
    """Which moments come before anything of a second epoch was seen."""
    return np.asarray(epoch <= np.floor(epoch[0]) + 1.0)


def _means(errors: Array, late: npt.NDArray[np.bool_]) -> tuple[float, float]:
    if len(errors) == 0:
        return 0.0, 0.0
    return float(np.mean(errors)), float(np.mean(errors[late])) if late.any() else 0.0


def _headway(
    series: Series, moments: npt.NDArray[np.intp], prior_s: float | None
) -> tuple[Array, Array, Array]:
    estimator = RemainingTime(prior_s)
    said = np.zeros((3, len(moments)))
    wanted = {int(row): column for column, row in enumerate(moments)}
    for row, (t_s, units) in enumerate(
        zip(series.t_s.tolist(), series.iteration.tolist(), strict=True)
    ):
        epoch = None if series.epoch is None else float(series.epoch[row])
        estimator.update(t_s, units, series.total, epoch=epoch)
        column = wanted.get(row)
        if column is not None:
            estimate = estimator.at(t_s)
            said[:, column] = (
                estimate.remaining_s or 0.0,
                estimate.low_s or 0.0,
                estimate.high_s or 0.0,
            )
    return said[0], said[1], said[2]


def _moving_average(times: Array, done: Array, total: float) -> Array:
    """Mean time of the last ten iterations, times the iterations left."""
    times, done = np.concatenate(([0.0], times)), np.concatenate(([0.0], done))
    rows = np.arange(1, len(times))
    back = np.maximum(rows - MOVING_AVERAGE, 0)
    units = np.maximum(done[rows] - done[back], 1e-9)
    return np.asarray((times[rows] - times[back]) / units * np.maximum(total - done[rows], 0.0))


def _tqdm(times: Array, done: Array, total: float) -> Array:
    """As tqdm shows it: units over seconds, both exponentially averaged and debiased."""
    guesses = np.zeros(len(times))
    mean_units = mean_s = 0.0
    last_t = last_done = 0.0
    for row, (t_s, units) in enumerate(zip(times.tolist(), done.tolist(), strict=True)):
        mean_units += TQDM_SMOOTHING * (units - last_done - mean_units)
        mean_s += TQDM_SMOOTHING * (t_s - last_t - mean_s)
        last_t, last_done = t_s, units
        # The debiasing factor is the same above and below, and cancels.
        guesses[row] = max(total - units, 0.0) * mean_s / mean_units if mean_units > 0 else 0.0
    return guesses
