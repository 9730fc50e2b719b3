"""How well times are predicted that were not learnt from."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from headway.clock import Clock
from headway.errors import InvalidInput
from headway.estimate.duration.time_model import CHAMPION, Forecast, TimeModel, contradicting
from headway.estimate.encode import Floats
from headway.estimate.features import Configuration, Unit, from_trace, measured_times
from headway.estimate.physics import Tables
from headway.model.trace import Trace

Indices = NDArray[np.intp]
MOST_IN_PERCENT = 2.0
"""A relative error above is told as a factor."""


class LeaveOut(enum.StrEnum):
    """Whole groups that are held out, one after the other, instead of random folds."""

    NETWORK = "network"
    GPU_TYPE = "gpu_type"
    GPUS = "gpus"


@dataclass(frozen=True, slots=True)
class Score:
    """How one model did on all held-out rows. Relative error is |predicted / measured - 1|."""

    mean_relative_error: float
    median_relative_error: float
    p95_relative_error: float
    within_10_frac: float
    within_20_frac: float
    coverage_80_frac: float
    """Share of measured times inside the 80 % interval."""
    width_80: float
    """Median of the interval's upper end over its lower end."""
    fit_s: float
    """In all, over the folds."""
    predict_s: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Predictions of rows that were held out, in the order of the rows."""

    measured_s: Floats
    forecast: Forecast
    fit_s: float
    predict_s: float


@dataclass(frozen=True)
class Evaluation:
    """The score of the champion on rows and folds."""

    rows: int
    folds: int
    seed: int
    champion: str
    models: dict[str, Score]
    left_out: list[str]
    """Rows that contradict all that are like them, in words; nobody is scored on them."""


@dataclass(frozen=True)
class Rows:
    """Traces as configurations with one time each, all of one unit."""

    unit: Unit
    configurations: list[Configuration]
    seconds: Floats

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Rows":
        """The rows of the unit that most of *traces* have.

        Raises:
            InvalidInput: No trace has a time.
        """
        times = [measured_times(t) for t in traces]
        unit = max(Unit, key=lambda u: sum(u in each for each in times))
        pairs = [
            (from_trace(t), each[unit])
            for t, each in zip(traces, times, strict=True)
            if unit in each
        ]
        if not pairs:
            raise InvalidInput("traces", len(traces), "give at least one that measured a time")
        return cls(unit, [c for c, _ in pairs], np.array([s for _, s in pairs]))

    def believable(self, tables: Tables, seed: int) -> tuple["Rows", list[str]]:
        """The rows that others do not contradict, and those that they do, in words.

        A time a thousand times too short, of one broken row, would be the mean
        error of all.
        """
        known = [tables.complete(c) for c in self.configurations]
        broken = {int(i) for i in contradicting(known, self.seconds, seed)}
        kept = [i for i in range(len(known)) if i not in broken]
        said = [
            f"{c.network} on {c.gpus} × {c.gpu_type}, batch {c.batch_size}: "
            f"{self.seconds[i]:.3g} s for one {self.unit}"
            for i, c in enumerate(self.configurations)
            if i in broken
        ]
        return Rows(self.unit, [self.configurations[i] for i in kept], self.seconds[kept]), said

    def folds(
        self, count: int, leave_out: LeaveOut | None, seed: int, tables: Tables
    ) -> list[Indices]:
        """Indices of the held-out rows of each fold.

        Groups are as the models see them, in one spelling: two spellings of one
        GPU in two groups would let a model see what it is asked.

        Raises:
            InvalidInput: There are fewer rows than folds, or only one group.
        """
        if leave_out is None:
            if not 2 <= count <= len(self.seconds):
                raise InvalidInput("folds", count, f"give 2 to {len(self.seconds)}, the rows")
            split = KFold(count, shuffle=True, random_state=seed).split(self.seconds)
            return [held for _, held in split]
        seen = [tables.complete(c) for c in self.configurations]
        groups = np.array([str(getattr(c, leave_out.value)) for c in seen])
        levels = np.unique(groups)
        if len(levels) < 2:
            raise InvalidInput("leave_out", leave_out.value, "give one in which the rows differ")
        return [np.flatnonzero(groups == level) for level in levels]


Predictor = Callable[[Sequence[Configuration]], Forecast]
Fit = Callable[[Sequence[Configuration], Floats], Predictor]
"""Fits a model on configurations and the seconds that they took; returns what predicts others."""


def evaluate(
    traces: Sequence[Trace],
    *,
    clock: Clock,
    tables: Tables,
    folds: int = 5,
    leave_out: LeaveOut | None = None,
    seed: int = 0,
) -> Evaluation:
    """Score headway's model on *traces*, each row predicted by a fit that never saw it.

    Raises:
        InvalidInput: The rows cannot be split so.
    """
    rows, left_out = Rows.of(traces).believable(tables, seed)
    held_out = rows.folds(folds, leave_out, seed, tables)
    held = hold_out(rows, champion(tables, seed), held_out, clock=clock)
    return Evaluation(
        len(rows.seconds), len(held_out), seed, CHAMPION, {CHAMPION: score(held)}, left_out
    )


def champion(tables: Tables, seed: int) -> Fit:
    """The model that headway uses, with the facts in *tables*."""

    def fit(configurations: Sequence[Configuration], seconds: Floats) -> Predictor:
        learnt = TimeModel.fit([tables.complete(c) for c in configurations], seconds, seed)
        return lambda asked: learnt.forecast([tables.complete(c) for c in asked])

    return fit


def hold_out(rows: Rows, fit: Fit, folds: Sequence[Indices], *, clock: Clock) -> HeldOut:
    """Predict each fold of *rows* by a model fitted on all the others, on one core.

    Threads that spin for a core which a training job uses slow both down.
    """
    with threadpool_limits(1):
        return _hold_out(rows, fit, folds, clock)


def _hold_out(rows: Rows, fit: Fit, folds: Sequence[Indices], clock: Clock) -> HeldOut:
    n = len(rows.seconds)
    median, low, high = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    fit_s = predict_s = 0.0
    for held in folds:
        kept = np.setdiff1d(np.arange(n), held)
        started_s = clock.monotonic_s()
        predict = fit([rows.configurations[i] for i in kept], rows.seconds[kept])
        fitted_s = clock.monotonic_s()
        forecast = predict([rows.configurations[i] for i in held])
        fit_s += fitted_s - started_s
        predict_s += clock.monotonic_s() - fitted_s
        median[held], low[held], high[held] = forecast.median_s, forecast.low_s, forecast.high_s
    return HeldOut(rows.seconds, Forecast(median, low, high), fit_s, predict_s)


def score(held: HeldOut) -> Score:
    """The figures of *held*."""
    error = np.abs(held.forecast.median_s / held.measured_s - 1)
    inside = (held.forecast.low_s <= held.measured_s) & (held.measured_s <= held.forecast.high_s)
    return Score(
        mean_relative_error=float(error.mean()),
        median_relative_error=float(np.median(error)),
        p95_relative_error=float(np.quantile(error, 0.95)),
        within_10_frac=float((error <= 0.10).mean()),
        within_20_frac=float((error <= 0.20).mean()),
        coverage_80_frac=float(inside.mean()),
        width_80=float(np.median(held.forecast.high_s / held.forecast.low_s)),
        fit_s=held.fit_s,
        predict_s=held.predict_s,
    )


def readable(relative_error: float) -> str:
    """*relative_error* for people: in per cent, or as a factor where per cent say nothing."""
    if not relative_error <= MOST_IN_PERCENT:
        factor = 1.0 + relative_error
        return f"× {factor:.1f}" if factor < 100 else f"× {factor:,.0f}"
    return f"{relative_error:.1%}"
