"""Remaining time on recorded runs: headway beside a moving average of ten and tqdm's estimate.

    PYTHONPATH=. python benchmarks/progress_recorded.py [--runs]       those that were tuned on
    PYTHONPATH=. python benchmarks/progress_recorded.py --apart        those that were kept apart

Walks every log of tests/data/remaining and prints for each family the mean relative error of the
time that is left after a tenth of the run, by the three, and how often headway's 80 % interval held
the truth: early (before the first epoch has ended, or in the first tenth where a log tells no
epochs), and later. The last line is the mean over the families. A log counts once in its family,
and a family once in the mean, however long they are. `--runs` prints each log before its family.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.progress_backtest import MAX_MOMENTS, backtest, read_series
from benchmarks.progress_baselines import errors_of

LOGS = Path(__file__).parents[1] / "tests" / "data" / "remaining"
_HEAD = ("from the first", "after a tenth", "moving average", "tqdm", "early in 80", "later in 80")


class Row(NamedTuple):
    """Errors and coverage of one log or the mean of several, in per cent; NaN: nothing to score."""

    from_first: float
    headway: float
    moving_average: float
    tqdm: float
    early: float
    later: float


def tuned_on() -> list[Path]:
    """The logs that the estimator was tuned on."""
    return sorted([*LOGS.glob("*.csv"), *(LOGS / "collected" / "tuned").glob("*.csv")])


def kept_apart() -> list[Path]:
    """The logs that were only looked at when the estimator was finished."""
    return sorted((LOGS / "collected" / "apart").glob("*.csv"))


def row_of(path: Path) -> Row:
    """What the log at *path* scores."""
    series = read_series(path)
    score = backtest(series)
    others = (errors_of(name, series, MAX_MOMENTS)[1] for name in ("moving_average", "tqdm"))
    held = (score.early_coverage_frac, score.interval_coverage_frac)
    return Row(
        100 * score.from_first,
        100 * score.after_10_percent,
        *(100 * error for error in others),
        *(float("nan") if share is None else 100 * share for share in held),
    )


def mean(rows: list[Row]) -> Row:
    """The mean of each column over the rows that have it."""
    table = np.array(rows)
    counted = np.maximum((~np.isnan(table)).sum(axis=0), 1)
    sums = np.nansum(table, axis=0)
    sums[np.isnan(table).all(axis=0)] = np.nan
    return Row(*(sums / counted))


def line(name: str, logs: int, row: Row) -> str:
    """One Markdown row."""
    cells = ("–" if np.isnan(value) else f"{value:.1f}" for value in row)
    return f"| {name} | {logs} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--apart", action="store_true", help="the logs that were kept apart")
    ask.add_argument("--runs", action="store_true", help="each log, too")
    asked = ask.parse_args()
    print(f"| family | logs | {' | '.join(_HEAD)} |\n|---|{'---|' * (len(_HEAD) + 1)}")
    families: dict[str, list[Row]] = {}
    for path in kept_apart() if asked.apart else tuned_on():
        row = row_of(path)
        families.setdefault(path.stem.partition("-")[0], []).append(row)
        if asked.runs:
            print(line(path.stem, 1, row))
    for family, rows in sorted(families.items()):
        print(line(family, len(rows), mean(rows)))
    logs = sum(map(len, families.values()))
    print(line("all", logs, mean([mean(rows) for rows in families.values()])))


if __name__ == "__main__":
    main()
