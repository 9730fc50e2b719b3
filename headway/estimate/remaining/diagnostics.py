"""Whether iteration times are steady: what the remaining time rests on.

The paper's two diagnostics: the augmented Dickey–Fuller test (Dickey and
Fuller, 1979; lags chosen by AIC) of the hypothesis that the series has a unit
root, that is, wanders without a level to come back to; and the coefficient of
variation.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headway.estimate.remaining.history import Array, Intervals
from headway.estimate.remaining.level import startup_entries
from headway.model.progress import ProgressPoint

ADF_LEVEL = 0.05
"""Below this p-value a unit root is rejected: the times are stationary."""
_MIN_TIMES = 20
"""Fewer times tell nothing about stationarity."""
_MAX_TIMES = 2000
"""The newest so many are tested: the test's cost grows with the square."""
_TABULATED, _TAIL_ENDS = (-18.83, 2.74), -1.61
_TAIL = (0.038269, 1.4412, 2.1659)
_BODY = (-0.010368, -0.12745, 0.93202, 1.7339)
"""MacKinnon's polynomials of the statistic, whose value is a normal score."""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Iteration times of one run, its start-up left out; None where there are too few."""

    iterations: int
    """Times that were judged."""
    startup: int
    """Times at the beginning that were left out."""
    mean_s: float | None
    cv: float | None
    """Coefficient of variation: standard deviation over mean."""
    adf_statistic: float | None
    adf_p_value: float | None

    @property
    def stationary(self) -> bool | None:
        """Whether the test rejects a unit root at 5 %; None when it could not be made."""
        return None if self.adf_p_value is None else self.adf_p_value < ADF_LEVEL

    def sentence(self) -> str:
        """One line for people."""
        if self.mean_s is None or self.cv is None:
            return "too few iterations to judge how steady they are"
        test = "too few for a test of stationarity"
        if self.adf_p_value is not None:
            verdict = "stationary" if self.stationary else "not stationary"
            test = f"{verdict} (augmented Dickey–Fuller p = {self.adf_p_value:.3g})"
        return (
            f"{self.iterations} iteration times after {self.startup} of start-up: mean "
            f"{self.mean_s:.4g} s, coefficient of variation {self.cv:.1%}, {test}"
        )


def diagnose(t_s: Array, iteration: Array) -> Diagnostics:
    """Judge the iteration times of a run.

    Args:
        t_s: When each report came, in seconds, rising.
        iteration: Iterations done then, rising.
    """
    if len(iteration) == 0:
        return Diagnostics(0, 0, None, None, None, None)
    if iteration[0] > 0:
        t_s, iteration = np.insert(t_s, 0, 0.0), np.insert(iteration, 0, 0.0)
    # Reports that were read in one piece share a time: the last of them counts.
    last = np.append(np.diff(t_s) > 0, True)
    seconds, units = np.diff(t_s[last]), np.diff(iteration[last])
    rising = units > 0
    unit_s, units = seconds[rising] / units[rising], units[rising]
    startup = startup_entries(Intervals(units, unit_s, np.cumsum(units)))
    times = unit_s[startup:]
    if len(times) < 2:
        return Diagnostics(len(times), startup, None, None, None, None)
    mean = float(np.mean(times))
    statistic, p_value = dickey_fuller(times[-_MAX_TIMES:])
    return Diagnostics(
        len(times), startup, mean, float(np.std(times, ddof=1)) / mean, statistic, p_value
    )


def diagnose_points(points: Iterable[ProgressPoint]) -> Diagnostics:
    """Judge the iteration times of a run by what its log said, oldest first."""
    t_s, done, _ = rising(points)
    return diagnose(t_s, done)


def rising(points: Iterable[ProgressPoint]) -> tuple[Array, Array, str]:
    """When how much was done, and of what: iterations, or epochs where there is nothing finer.

    Points that bring nothing new are left out, and all before a restart, which
    counts from its own beginning.

    Returns:
        Seconds since the start; units done then, rising; the unit's name.
    """
    known = list(points)
    fine = [(p.t_s, float(p.iteration)) for p in known if p.iteration is not None]
    coarse = [(p.t_s, float(p.epoch)) for p in known if p.epoch is not None]
    chosen, unit = (fine, "iteration") if fine or not coarse else (coarse, "epoch")
    t_s: list[float] = []
    done: list[float] = []
    for at, count in chosen:
        if done and count < 0.5 * done[-1]:
            t_s, done = [], []
        if not done or (count > done[-1] and at >= t_s[-1]):
            t_s.append(at)
            done.append(count)
    return np.asarray(t_s, dtype=float), np.asarray(done, dtype=float), unit


def dickey_fuller(times: Array) -> tuple[float | None, float | None]:
    """Statistic and p-value of the test with a constant; None where the test says nothing.

    Lags by AIC among Schwert's 12 (n ÷ 100)^¼; the p-value by MacKinnon's response surface
    (1994, Journal of Business & Economic Statistics 12, 167–176, table 3, one variable).
    """
    if len(times) < _MIN_TIMES:
        return None, None
    if float(np.ptp(times)) <= 1e-9 * float(np.mean(times)):
        return None, 0.0  # the same time again and again: as stationary as can be
    times = times / np.mean(times)
    most = min(math.ceil(12 * (len(times) / 100) ** 0.25), len(times) // 2 - 2)
    design, steps = _lagged(times, most)
    # What each further column explains, by one decomposition for all numbers of lags.
    left = steps @ steps - np.cumsum((np.linalg.qr(design)[0].T @ steps) ** 2)
    aic = len(steps) * np.log(np.maximum(left[1:], 1e-300)) + 2.0 * np.arange(most + 1)
    design, steps = _lagged(times, int(np.argmin(aic)))
    inverse = np.linalg.pinv(design)
    slopes = inverse @ steps
    variance = np.sum((steps - design @ slopes) ** 2) / (len(steps) - design.shape[1])
    statistic = float(slopes[1] / math.sqrt(variance * (inverse @ inverse.T)[1, 1] or math.nan))
    if not math.isfinite(statistic):
        return None, None
    if not _TABULATED[0] <= statistic <= _TABULATED[1]:
        return statistic, float(statistic > 0)
    score = float(np.polyval(_TAIL if statistic <= _TAIL_ENDS else _BODY, statistic))
    return statistic, 0.5 * math.erfc(-score / math.sqrt(2))


def _lagged(times: Array, lags: int) -> tuple[Array, Array]:
    """Columns (one, the time before, so many *lags* of steps), and the steps that they explain."""
    steps = np.diff(times)
    before = [steps[lags - lag : len(steps) - lag] for lag in range(1, lags + 1)]
    return np.column_stack([np.ones(len(steps) - lags), times[lags:-1], *before]), steps[lags:]
