"""How well times are predicted that were not learnt from: by scikit-learn's splits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, LeaveOneGroupOut
from threadpoolctl import threadpool_limits

from headway.errors import InvalidInput
from headway.estimate.duration.time_model import CHAMPION, SPAN, contradicting
from headway.estimate.encode import Floats
from headway.estimate.features import Unit, from_trace, measured_times
from headway.estimate.frame import configurations_of, frame_of
from headway.estimate.physics import Tables
from headway.estimate.regressors import Estimator, Runtime, TraceFeatures
from headway.model.trace import Trace

Split = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Positions of the rows that are seen, and of those that are held out."""
GROUPS = ("network", "gpu_type", "gpus")
"""Columns by which whole groups are held out instead of random folds."""


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


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Predictions of rows that were held out, in the order of the rows."""

    measured_s: Floats
    said_s: Floats
    """Low, median and high, shape (n, 3)."""


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
    """Traces as rows of a frame with one time each, all of one unit."""

    unit: Unit
    X: pd.DataFrame
    """As `TraceFeatures` takes it."""
    seconds: Floats

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Rows":
        """The rows of the unit that most of *traces* have.

        Raises:
            InvalidInput: No trace has a time.
        """
        times = [measured_times(t) for t in traces]
        unit = max(Unit, key=lambda u: sum(u in each for each in times))
        timed = [(t, each[unit]) for t, each in zip(traces, times, strict=True) if unit in each]
        if not timed:
            raise InvalidInput("traces", len(traces), "give at least one that measured a time")
        frame = frame_of([from_trace(t) for t, _ in timed])
        return cls(unit, frame, np.array([s for _, s in timed]))

    def believable(self, tables: Tables, seed: int) -> tuple["Rows", list[str]]:
        """The rows that others do not contradict, and those that they do, in words.

        A time a thousand times too short, of one broken row, would be the mean
        error of all.
        """
        known = configurations_of(TraceFeatures(tables).transform(self.X))
        broken = contradicting(known, self.seconds, seed)
        said = [
            f"{c.network} on {c.gpus} × {c.gpu_type}, batch {c.batch_size}: "
            f"{self.seconds[i]:.3g} s for one {self.unit}"
            for i, c in zip(broken, configurations_of(self.X.iloc[broken]), strict=True)
        ]
        kept = np.setdiff1d(np.arange(len(known)), broken)
        return Rows(self.unit, self.X.iloc[kept], self.seconds[kept]), said


def model_of(tables: Tables, seed: int) -> Estimator:
    """The model that headway uses, with the facts in *tables*."""
    steps = [("features", TraceFeatures(tables)), ("runtime", Runtime(random_state=seed))]
    return Estimator(steps)


def hold_out(
    model: Any,
    rows: Rows,
    tables: Tables,
    *,
    folds: int = 5,
    leave_out: str | None = None,
    seed: int = 0,
) -> tuple[HeldOut, int]:
    """Predict each fold of *rows* by *model* fitted on all others; and how many folds there are.

    Groups are by the names that models see: two spellings of one GPU in two groups would let a
    model see what it is asked.

    Args:
        model: An estimator that tells quantiles, and takes the rows as they are.
        rows: What there is.
        tables: By which names are told.
        folds: Random parts.
        leave_out: One of `GROUPS`, each value of which is a fold instead.
        seed: Of the folds.

    Raises:
        InvalidInput: There are fewer rows than folds, or only one group.
    """
    if leave_out is None:
        if not 2 <= folds <= len(rows.seconds):
            raise InvalidInput("folds", folds, f"give 2 to {len(rows.seconds)}, the rows")
        splits = KFold(folds, shuffle=True, random_state=seed).split(rows.X)
    else:
        groups = TraceFeatures(tables).transform(rows.X)[leave_out]
        folds = groups.nunique()
        if folds < 2:
            raise InvalidInput("leave_out", leave_out, "give one in which the rows differ")
        splits = LeaveOneGroupOut().split(rows.X, groups=groups)
    return HeldOut(rows.seconds, said_of(model, rows.X, rows.seconds, splits)), folds


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


def evaluate(
    traces: Sequence[Trace],
    *,
    tables: Tables,
    folds: int = 5,
    leave_out: str | None = None,
    seed: int = 0,
) -> Evaluation:
    """Score headway's model on *traces*, each row predicted by a fit that never saw it.

    Raises:
        InvalidInput: The rows cannot be split so.
    """
    rows, left_out = Rows.of(traces).believable(tables, seed)
    held, count = hold_out(
        model_of(tables, seed), rows, tables, folds=folds, leave_out=leave_out, seed=seed
    )
    scores = {CHAMPION: score(held)}
    return Evaluation(len(rows.seconds), count, seed, CHAMPION, scores, left_out)


def score(held: HeldOut) -> Score:
    """The figures of *held*."""
    low_s, median_s, high_s = held.said_s.T
    error = np.abs(median_s / held.measured_s - 1)
    inside = (low_s <= held.measured_s) & (held.measured_s <= high_s)
    return Score(
        mean_relative_error=float(error.mean()),
        median_relative_error=float(np.median(error)),
        p95_relative_error=float(np.quantile(error, 0.95)),
        within_10_frac=float((error <= 0.10).mean()),
        within_20_frac=float((error <= 0.20).mean()),
        coverage_80_frac=float(inside.mean()),
        width_80=float(np.median(high_s / low_s)),
    )
