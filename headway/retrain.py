"""The refit: a challenger learns from the older traces and meets the champion on the newest.

The champion keeps its place unless the challenger is better on runs that
neither has seen. What wins is then refitted on everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from headway.estimate import store
from headway.estimate.estimator import FEWEST, Estimators
from headway.estimate.features import from_trace, measured_times
from headway.model.trace import Trace

HELD_OUT_FRAC = 0.2


@dataclass(frozen=True, slots=True)
class Verdict:
    """How champion and challenger did on the newest runs."""

    traces: int
    held_out: int
    champion_error: float | None
    """Median relative error; None when there is no champion, or it knows none of them."""
    challenger_error: float | None
    promoted: bool
    version: int
    """The version in use afterwards; 0 is the prior."""
    reason: str


def retrain(traces: Sequence[Trace], models_dir: Path, *, fitted_at: datetime) -> Verdict:
    """Refit on *traces*, oldest first; promote the challenger only if it is better."""
    champion = store.load(models_dir)
    usable = [trace for trace in traces if measured_times(trace)]
    held = max(1, round(len(usable) * HELD_OUT_FRAC))
    older, newest = usable[:-held], usable[-held:]
    if len(older) < FEWEST:
        reason = f"{len(usable)} usable traces; {FEWEST + held} are needed to learn and to check"
        return Verdict(len(usable), 0, None, None, False, champion.version, reason)
    challenger = Estimators.fit(older, fitted_at=fitted_at)
    theirs, ours = _error(champion, newest), _error(challenger, newest)
    promoted = ours is not None and (theirs is None or ours < theirs)
    version = champion.version
    if promoted and ours is not None:
        latest = store.versions(models_dir)
        version = 1 + max((store.version_of(path) for path in latest), default=0)
        winner = Estimators.fit(usable, fitted_at=fitted_at, version=version)
        store.save(replace(winner, figures={"median_relative_error": ours}), models_dir)
    return Verdict(len(usable), held, theirs, ours, promoted, version, _reason(theirs, ours))


def _error(estimators: Estimators, traces: Sequence[Trace]) -> float | None:
    """Median relative error of the predicted runtime of whole runs."""
    errors = []
    for trace in traces:
        said = estimators.predict(from_trace(trace)).runtime_s
        if said is not None and trace.runtime_s:
            errors.append(abs(said - trace.runtime_s) / trace.runtime_s)
    return float(np.median(errors)) if errors else None


def _reason(theirs: float | None, ours: float | None) -> str:
    if ours is None:
        return "the challenger could say nothing about the newest runs"
    if theirs is None:
        return f"first to say anything; it is off by {ours:.1%} in the median"
    better = "better" if ours < theirs else "not better"
    return f"{better}: off by {ours:.1%} in the median, the champion by {theirs:.1%}"
