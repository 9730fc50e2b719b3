"""Remaining time on made-up series: headway beside an oracle, tqdm's and a moving average of ten.

    PYTHONPATH=. python benchmarks/progress_remaining.py [--runs 20] [--seed 1] [--family NAME]
    PYTHONPATH=. python benchmarks/progress_remaining.py --every 20     reports of twenty iterations

Prints, for each family of series (`progress_families`), the mean absolute relative
error of the time that is left in percent, over the whole run and after its first
tenth, how often the 80 % interval held the truth in the first tenth and after it,
and the error after the first tenth with a prior that is right, twice too long and
half as long.

The oracle knows the family and the run's constants (its noise, its pauses), yet
not what is to come: no method can do better. It also knows that a slow-down will
come, or go, and about when. The blind oracle knows the constants too, but takes
what is now for what will be: in `slow_down` and `neighbour`, where the future
changes without a sign before, that is all a method for any run can hope for.
"""

import argparse

import numpy as np

from benchmarks.progress_backtest import Scores, Series, backtest
from benchmarks.progress_baselines import BASELINES, errors_of
from benchmarks.progress_families import HELD_OUT, TUNED, Draw, Family, Now, oracle

THE_END = Now(10**9)
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


def row(name: str, family: Family, options: argparse.Namespace) -> str:
    """One family's line; the last iteration always reports."""
    runs, moments, every = options.runs, options.moments, options.every
    scored: list[Scores] = []
    others: dict[str, list[tuple[float, float]]] = {name: [] for name in BASELINES}
    best: list[tuple[float, float]] = []
    blind: list[tuple[float, float]] = []
    primed: dict[float, list[Scores]] = {factor: [] for factor in PRIORS}
    for run in range(runs):
        rng = np.random.default_rng((options.seed, run))
        n = int(10 ** rng.uniform(2, 4.3))
        draw = family(rng, n)
        d = draw(rng, THE_END)
        told = np.append(np.arange(every - 1, len(d) - 1, every), len(d) - 1)
        series = Series(np.cumsum(d)[told] * 0.2, told + 1.0, float(len(d)))
        scored.append(backtest(series, moments=moments))
        for other, found in others.items():
            found.append(errors_of(other, series, moments))
        best.append(oracle_errors(draw, d, rng, calm=False))
        blind.append(oracle_errors(draw, d, rng, calm=True))
        for factor in PRIORS:
            prior_s = factor * float(series.t_s[-1])
            primed[factor].append(backtest(series, prior_s, moments=moments))
    table = "".join(percent(found) for found in (errors(scored), *others.values()))
    held = 100 * np.mean([each.interval_coverage_frac or 0 for each in scored])
    early = [each.early_coverage_frac for each in scored]
    at_first = 100 * np.mean([share for share in early if share is not None] or [np.nan])
    priors = "".join(percent(errors(each)) for each in primed.values())
    return f"{name:18}{percent(best)}{percent(blind)}{table}{at_first:6.0f} %{held:6.0f} %{priors}"


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--runs", type=int, default=20)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--moments", type=int, default=100)
    ask.add_argument("--family", choices=TUNED | HELD_OUT)
    ask.add_argument("--every", type=int, default=1, help="iterations of a report")
    options = ask.parse_args()
    columns = ("oracle", "blind oracle", "headway", *BASELINES)
    print(
        f"{'family':18}" + "".join(f"{m:>16}" for m in columns) + "   early in 80 %"
        "   prior right       prior x 2     prior x 0.5"
    )
    for title, families in (("tuned on", TUNED), ("held out", HELD_OUT)):
        print(f"-- {title}")
        for name, family in families.items():
            if options.family in (None, name):
                line = row(name, family, options)
                print(line, flush=True)


if __name__ == "__main__":
    main()
