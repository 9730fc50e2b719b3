"""Remaining time on made-up series: headway beside an oracle, tqdm's and a moving average of ten.

    PYTHONPATH=. python benchmarks/progress_remaining.py [--runs 20] [--seed 1] [--family NAME]

Prints, for each family of series (`progress_families`), the mean absolute relative
error of the time that is left in percent, over the whole run and after its first
tenth, how often the 80 % interval held the truth, and the error after the first
tenth with a prior that is right, twice too long and half as long.

The oracle knows the family and the run's constants (its noise, its pauses), yet
not what is to come: no method can do better. It also knows that a slow-down will
come, or go, and about when. The blind oracle knows the constants too, but takes
what is now for what will be: in `slow_down` and `neighbour`, where the future
changes without a sign before, that is all a method for any run can hope for.
"""

import argparse

import numpy as np

from benchmarks.progress_families import HELD_OUT, TUNED, Draw, Family, Now, oracle
from headway.estimate.remaining_replay import Scores, replay
from headway.estimate.remaining_series import Series

THE_END = Now(10**9)
METHODS = ("headway", "moving_average", "tqdm")
PRIORS = (1.0, 2.0, 0.5)
ORACLE_MOMENTS = 25


def percent(scores: list[tuple[float, float]]) -> str:
    """Two means, from the first iteration on and after a tenth."""
    first, later = 100 * np.mean(scores, axis=0)
    return f"{first:8.1f} /{later:6.2f}"


def errors(scores: list[Scores]) -> list[tuple[float, float]]:
    """Both errors of each."""
    return [(score.from_first, score.after_10_percent) for score in scores]


def oracle_errors(
    draw: Draw, d: np.ndarray, rng: np.random.Generator, *, calm: bool
) -> tuple[float, float]:
    """Both errors of the oracle, at a few evenly spaced moments of the run *d*."""
    n = len(d)
    moments = np.unique(np.linspace(1, n - 1, min(ORACLE_MOMENTS, n - 1)).astype(int))
    found = np.array([abs(oracle(draw, rng, Now(m, calm)) / d[m:].sum() - 1) for m in moments])
    return float(found.mean()), float(found[moments >= 0.1 * n].mean())


def row(name: str, family: Family, seed: int, runs: int, moments: int) -> str:
    """One family's line."""
    scored: list[dict[str, Scores]] = []
    best: list[tuple[float, float]] = []
    blind: list[tuple[float, float]] = []
    primed: dict[float, list[Scores]] = {factor: [] for factor in PRIORS}
    for run in range(runs):
        rng = np.random.default_rng((seed, run))
        n = int(10 ** rng.uniform(2, 4.3))
        draw = family(rng, n)
        d = draw(rng, THE_END)
        series = Series(np.cumsum(d) * 0.2, np.arange(1.0, len(d) + 1), float(len(d)))
        scored.append(replay(series, moments=moments))
        best.append(oracle_errors(draw, d, rng, calm=False))
        blind.append(oracle_errors(draw, d, rng, calm=True))
        for factor in PRIORS:
            prior_s = factor * float(series.t_s[-1])
            primed[factor].append(replay(series, prior_s, moments=moments)["headway"])
    table = "".join(percent(errors([each[method] for each in scored])) for method in METHODS)
    held = 100 * np.mean([each["headway"].interval_coverage_frac or 0 for each in scored])
    priors = "".join(percent(errors(each)) for each in primed.values())
    return f"{name:18}{percent(best)}{percent(blind)}{table}{held:6.0f} %{priors}"


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--runs", type=int, default=20)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--moments", type=int, default=100)
    ask.add_argument("--family", choices=TUNED | HELD_OUT)
    options = ask.parse_args()
    columns = ("oracle", "blind oracle", *METHODS)
    print(
        f"{'family':18}" + "".join(f"{m:>16}" for m in columns) + "  in 80 %"
        "   prior right       prior x 2     prior x 0.5"
    )
    for title, families in (("tuned on", TUNED), ("held out", HELD_OUT)):
        print(f"-- {title}")
        for name, family in families.items():
            if options.family in (None, name):
                print(row(name, family, options.seed, options.runs, options.moments), flush=True)


if __name__ == "__main__":
    main()
