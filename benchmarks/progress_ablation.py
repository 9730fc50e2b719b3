"""What each part of the remaining-time model earns: the model without it, on recorded runs too.

    PYTHONPATH=. python benchmarks/progress_ablation.py [--runs 4] [--moments 25] [--part NAME]

Prints one Markdown row for each part: by how much the error changes without it, from the first
report on and after a tenth of the run (geometric mean over the families of `progress_families`,
with reports of one and of twenty iterations; mean over the recorded runs that were tuned on, with
and without their epochs), and how often the 80 % interval then held, early and later.
"""

import argparse
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.progress_backtest import Series, backtest, read_series
from benchmarks.progress_families import HELD_OUT, TUNED
from benchmarks.progress_recorded import tuned_on
from benchmarks.progress_remaining import THE_END
from headway.estimate.remaining import changes, level, pauses, remaining_time
from headway.estimate.remaining.history import Array, Intervals

Patch = tuple[object, str, Any]
Named = list[tuple[str, Series]]


def mean_of_all(
    unit_s: Array, units: Array, noise: float, total: float, left: float
) -> changes.Mixture:
    """The mean of all entries, instead of the change points."""
    del total, left
    mean_s = float(unit_s @ units) / float(units.sum())
    sd = mean_s * max(noise, 0.003) / len(unit_s) ** 0.5
    return changes.Mixture(np.ones(1), np.array([mean_s]), np.array([sd]))


def plain_guess(unit_s: Array, units: Array, startup: int, total: float) -> level.Level:
    """The fastest of the first entries is believed."""
    del units, startup, total
    return level.Level(float(unit_s.min()), 0.5, 0.5)


def no_startup(seen: Intervals) -> int:
    """Nothing is start-up."""
    del seen
    return 0


PARTS: dict[str, list[Patch]] = {
    "(nothing)": [],
    "guess before four reports": [(level, "_first_guess", plain_guess)],
    "start-up": [(remaining_time, "startup_entries", no_startup)],
    "change points": [(level, "mean_ahead", mean_of_all)],
    "lines between change points": [(changes, "LINES", 1e-12)],
    "newest outliers": [(level, "SPIKE_SDS", 1e9)],
    "mean square in the noise": [(level, "FEW_ENTRIES", 10**9)],
    "pauses": [(remaining_time, "pause_flags", lambda unit_s: np.zeros(len(unit_s)))],
    "pauses at steady distances": [(pauses, "_comb", lambda *_: None)],
    "pauses by length": [(pauses, "_groups", lambda extra_s: [np.arange(len(extra_s))])],
    "early pauses are start-up": [(pauses, "STARTUP_ENTRIES", 0)],
    "interval: unseen changes": [(level, "UNSEEN_SD", 0.0)],
    "interval: early": [(level, "EARLY_SD", 0.0)],
    "interval: first epoch's end": [
        (remaining_time, name, 0.0) for name in ("FIRST_END", "FIRST_END_UP", "FIRST_END_DOWN")
    ],
}


def recorded() -> Named:
    """Recorded runs, with and without their epochs."""
    found = []
    for path in tuned_on():
        series = read_series(path)
        found += [(path.stem, series), (path.stem, replace(series, epoch=None))]
    return found


def made_up(runs: int, every: int) -> Named:
    """So many runs of each family that have at least four reports."""
    found = []
    for name, family in (TUNED | HELD_OUT).items():
        for run in range(runs):
            rng = np.random.default_rng((1, run))
            n = int(10 ** rng.uniform(2, 4.3))
            d = family(rng, n)(rng, THE_END)
            told = np.append(np.arange(every - 1, len(d) - 1, every), len(d) - 1)
            if len(told) >= 4:
                found.append((name, Series(np.cumsum(d)[told] * 0.2, told + 1.0, float(len(d)))))
    return found


def measure(named: Named, moments: int) -> np.ndarray:
    """For each name: both errors, and the interval's coverage early and later."""
    found: dict[str, list[list[float]]] = {}
    for name, series in named:
        score = backtest(series, moments=moments)
        early, late = score.early_coverage_frac, score.interval_coverage_frac
        row = [
            score.from_first,
            score.after_10_percent,
            *(np.nan if x is None else x for x in (early, late)),
        ]
        found.setdefault(name, []).append(row)
    return np.array([np.nanmean(rows, axis=0) for rows in found.values()])


def cells(kind: str, got: np.ndarray, whole: np.ndarray) -> str:
    """Change of both errors, and coverage."""
    if kind == "real":
        ratio = got[:, :2].mean(axis=0) / whole[:, :2].mean(axis=0)
    else:
        ratio = np.exp(np.log(got[:, :2] / whole[:, :2]).mean(axis=0))
    first, later = 100 * (ratio - 1)
    early, late = 100 * np.nanmean(got[:, 2:], axis=0)
    return f"{first:+.0f} / {later:+.0f} % | {early:.0f} / {late:.0f} %"


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--runs", type=int, default=4)
    ask.add_argument("--moments", type=int, default=25)
    ask.add_argument("--part", choices=PARTS, action="append")
    asked = ask.parse_args()
    sets = {"1": made_up(asked.runs, 1), "20": made_up(asked.runs, 20), "real": recorded()}
    whole = {kind: measure(named, asked.moments) for kind, named in sets.items()}
    print("| without | reports of 1 | held | reports of 20 | held | real runs | held |")
    print("|---|---|---|---|---|---|---|")
    for part in asked.part or PARTS:
        with ExitStack() as stack:
            for owner, name, value in PARTS[part]:
                stack.enter_context(patch.object(owner, name, value))
            row = [cells(k, measure(named, asked.moments), whole[k]) for k, named in sets.items()]
        print(f"| {part} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
