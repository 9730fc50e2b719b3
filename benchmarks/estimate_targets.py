"""All targets of the estimators beside what is reached: `make estimate-targets`, half an hour.

    PYTHONPATH=. python benchmarks/estimate_targets.py [--mirrors DIR] [--folder DIR] [--seeds 1]

Of made rows and of public measurements; benchmarks/estimators.py and public_tables.py print each in
full. What a node installs, `du -sm .venv` of an installation tells.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.estimators import GAVEL, made_grid, speed_ups
from benchmarks.held_out import Rows, hold_out, model_of
from benchmarks.lines import code_lines
from benchmarks.public_tables import Measured, add_folders, all_measured
from benchmarks.run_stream import walked
from headway.clock import SystemClock
from headway.estimate.evaluation.evaluate import HeldOut, score
from headway.estimate.physics import shipped
from headway.estimate.trace_files import parse

_Row = tuple[str, str, str]
"""A figure, what it is to be, and what it is."""


def main() -> None:
    """Print a row for each target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_folders(parser)
    parser.add_argument("--seeds", type=int, default=1, help="draws of folds, grids and streams")
    asked = parser.parse_args()
    measured = all_measured(asked.folder, asked.mirrors, rows=30)
    rows = [*_size(), *_stream(asked.seeds), *_folds(asked.seeds), *_made(asked.seeds)]
    rows += [*_speed_ups(asked.seeds), *_public(measured)]
    print("\n| figure | target | reached |\n|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def _folds(seeds: int) -> Iterator[_Row]:
    traces, told = parse(GAVEL.read_bytes(), GAVEL.name, "gavel").traces, []
    for seed in range(seeds):
        rows, _ = Rows.of(traces).believable(shipped(), seed)
        told.append(score(hold_out(model_of(shipped(), seed), rows, shipped(), seed=seed)[0]))
    mean = 100 * np.mean([each.mean_relative_error for each in told])
    median = 100 * np.mean([each.median_relative_error for each in told])
    inside = 100 * np.mean([each.coverage_80_frac for each in told])
    reached = f"{mean:.1f}, {median:.1f} %; {inside:.1f}"
    figure = "Gavel, 5-fold: mean, median error; in 80 %"
    yield figure, "≤ 5.0, 3.0 %; 78–82", reached


def _made(seeds: int) -> Iterator[_Row]:
    for count in (200, 500):
        clock, inside = SystemClock(), []
        started_s = clock.monotonic_s()
        for seed in range(seeds):
            rows, _ = Rows.of(made_grid(count, seed)).believable(shipped(), seed)
            held, _ = hold_out(model_of(shipped(), seed), rows, shipped(), seed=seed)
            inside.append(score(held).coverage_80_frac)
        took_s = (clock.monotonic_s() - started_s) / seeds
        figure = f"made grid of {count} rows: in 80 %; time"
        yield figure, "76–84 %; ≤ 120 s", f"{100 * np.mean(inside):.1f} %; {took_s:.0f} s"


def _stream(seeds: int) -> Iterator[_Row]:
    found = pd.concat([walked(seed) for seed in range(seeds)])
    usual = found[~found["late"] & (found["before"] >= 3)]["error"].mean()
    late = found[found["late"]].groupby("before")["error"].mean()
    yield "stream, after 3 runs of a recipe: mean error", "≤ 10 %", f"{usual:.1%}"
    yield "after an update that slows all, from the 6th run on", "≤ 10 %", f"{late[5:].mean():.1%}"


def _speed_ups(seeds: int) -> Iterator[_Row]:
    traces = parse(GAVEL.read_bytes(), GAVEL.name, "gavel").traces
    for gpus, pairs in sorted(speed_ups(traces, seeds).items()):
        said, true = np.array(pairs).T
        reached = f"{np.abs(said / true - 1).mean():.1%}, {said.max():.2f}"
        yield f"speed-up on {gpus} GPUs: mean error, largest said", f"≤ 8 %, {gpus}", reached


def _public(measured: Measured) -> Iterator[_Row]:
    figure = "an unseen GPU type, all sources: median, mean error"
    yield figure, "≤ 10, 20 %", _both(measured.said("gpu_type"))
    figure = "a source but for three of its runs: median, mean error"
    yield figure, "≤ 15 %", _both(measured.own_known(1))


def _both(held: HeldOut) -> str:
    got = score(held)
    return f"{100 * got.median_relative_error:.1f}, {100 * got.mean_relative_error:.1f} %"


def _size() -> Iterator[_Row]:
    folder = Path(__file__).parents[1] / "headway" / "estimate"
    lines = sum(code_lines(path.read_text()) for path in folder.rglob("*.py"))
    yield "code lines of headway/estimate", "≤ 3,000", f"{lines:,}"


if __name__ == "__main__":
    main()
