"""Rows of traces, and what a model says of those that it has not seen: folds, groups left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import KFold, LeaveOneGroupOut

from headway.estimate.duration.terms import plain_kernel, workload
from headway.estimate.duration.time_model import believable, encoded
from headway.estimate.encode import Floats
from headway.estimate.evaluation.evaluate import HeldOut, said_of
from headway.estimate.features import Configuration, Unit, from_trace, measured_times
from headway.estimate.frame import configurations_of, frame_of
from headway.estimate.physics import Tables
from headway.estimate.regressors import Estimator, Runtime, TraceFeatures
from headway.model.trace import Trace


@dataclass(frozen=True)
class Rows:
    """Traces as rows of a frame with one time each, all of one unit."""

    unit: Unit
    X: pd.DataFrame
    """As `TraceFeatures` takes it."""
    seconds: Floats

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Rows":
        """The rows of the unit that most of *traces* have."""
        times = [measured_times(t) for t in traces]
        unit = max(Unit, key=lambda u: sum(u in each for each in times))
        timed = [(t, each[unit]) for t, each in zip(traces, times, strict=True) if unit in each]
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


def model_of(tables: Tables, seed: int, unit: Unit = Unit.ITERATION) -> Estimator:
    """The model that headway uses for the time of a *unit*, with the facts in *tables*."""
    runtime = Runtime(unit=unit, random_state=seed)
    steps = [("features", TraceFeatures(tables)), ("runtime", runtime)]
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
        leave_out: A column, each value of which is a fold instead.
        seed: Of the folds.
    """
    if leave_out is None:
        splits = KFold(folds, shuffle=True, random_state=seed).split(rows.X)
    else:
        groups = TraceFeatures(tables).transform(rows.X)[leave_out]
        folds = groups.nunique()
        splits = LeaveOneGroupOut().split(rows.X, groups=groups)
    return HeldOut(rows.seconds, said_of(model, rows.X, rows.seconds, splits)), folds


def contradicting(
    configurations: Sequence[Configuration], seconds: Floats, seed: int = 0
) -> NDArray[np.intp]:
    """Which rows `TimeModel.fit` would not learn from, because they contradict all like them."""
    encoder, _, x, y, *_ = encoded(configurations, seconds)
    rng = np.random.default_rng(seed)
    return np.flatnonzero(~believable(plain_kernel(encoder, x), x, y, workload(encoder), rng))
