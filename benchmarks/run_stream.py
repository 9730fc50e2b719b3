"""A made stream of runs, each predicted as a site predicts it before it starts: `--part stream`.

Recipes recur, each with data that grow by its own rate, and 5 % of noise. In the middle an update
of a library makes every run 20 % slower. Estimators are fitted anew each night.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd

from headway.estimate.estimator import Estimators
from headway.estimate.features import from_trace
from headway.estimate.recall import RECENT, said_of
from headway.model.trace import Trace

_RECIPES, _OF_EACH, _A_DAY = 8, 30, 40
_SLOWER, _NOISE = 1.2, 0.05


def stream(seed: int) -> list[tuple[Trace, bool]]:
    """Runs in their order, and whether the update had come."""
    rng = np.random.default_rng(seed)
    base_s, growth = rng.uniform(300, 7200, _RECIPES), rng.uniform(0.0, 0.03, _RECIPES)
    turns, found, count = rng.permutation(np.repeat(np.arange(_RECIPES), _OF_EACH)), [], {}
    for at, recipe in enumerate(turns.tolist()):
        number = count[recipe] = count.get(recipe, -1) + 1
        larger, late = (1 + growth[recipe]) ** number, at >= len(turns) // 2
        seconds = base_s[recipe] * larger * (_SLOWER if late else 1.0)
        seconds *= float(np.exp(rng.normal(0, _NOISE)))
        trace = Trace(
            *(f"net{recipe}", "v100", 1, 32),
            runtime_s=seconds,
            epochs=3,
            dataset_samples=round(50_000 * larger),
            started_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * at),
        )
        found.append((trace, late))
    return found


def walked(seed: int) -> pd.DataFrame:
    """For each run of `stream`: runs of its recipe before it, since the update, and its error."""
    known: list[Trace] = []
    estimators, rows = Estimators(), []
    for at, (trace, late) in enumerate(stream(seed)):
        if at and at % _A_DAY == 0:
            estimators = Estimators.fit(known, fitted_at=datetime(2026, 1, 1, tzinfo=UTC))
        asked = from_trace(trace)
        recent = [t for t in known if t.network == trace.network][: -RECENT - 1 : -1]
        said = said_of(asked, estimators.predict([asked])[0], recent)
        ends = said.runtime_low_s, said.runtime_s, said.runtime_high_s
        low_s, median_s, high_s = (each or 0.0 for each in ends)
        took_s = trace.runtime_s or 0.0
        error, held = abs(median_s / took_s - 1), low_s <= took_s <= high_s
        rows.append((trace.network, late, error, held))
        known.append(replace(trace, recipe=trace.network))
    found = pd.DataFrame(rows, columns=["recipe", "late", "error", "held"])
    return found.assign(before=found.groupby(["recipe", "late"]).cumcount())


def streams(seeds: int) -> None:
    """Errors before the update, from the fourth run of a recipe on, and run by run after it."""
    found = pd.concat([walked(seed) for seed in range(seeds)])
    usual = found[~found["late"] & (found["before"] >= 3)]
    print(
        f"before the update, after 3 runs of the recipe: {usual['error'].mean():.1%} in the mean, "
        f"{usual['error'].median():.1%} in the median; {usual['held'].mean():.0%} in 80 %"
    )
    late = found[found["late"]].groupby("before").agg({"error": ["mean", "median"], "held": "mean"})
    print("after it, by the runs of the recipe that were slower already:")
    print((100 * late.head(10)).round(1).to_string())
