"""All targets of the estimators beside what is reached: `make estimate-targets`.

    PYTHONPATH=. python benchmarks/estimate_targets.py [--mirrors DIR] [--seeds 1] [--part folds|…]

Of made rows and of public measurements; benchmarks/estimators.py and public_tables.py print each in
full. Each row is printed as soon as it is known, with the processor time that its part took.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pandas as pd
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.estimators import GAVEL, made_grid, speed_ups
from benchmarks.held_out import Rows, hold_out, model_of
from benchmarks.lines import code_lines
from benchmarks.public_tables import Measured, add_folders, all_measured
from benchmarks.run_stream import walked
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
    parser.add_argument("--part", choices=PARTS, action="append")
    asked = parser.parse_args()
    print("| figure | target | reached | processor |\n|---|---|---|---|", flush=True)
    for part in asked.part or PARTS:
        started_s = time.process_time()
        for row in PARTS[part](asked):
            print(f"| {' | '.join(row)} | {time.process_time() - started_s:.0f} s |", flush=True)


def _folds(asked: argparse.Namespace) -> Iterator[_Row]:
    traces, told = parse(GAVEL.read_bytes(), GAVEL.name, "gavel").traces, []
    for seed in range(asked.seeds):
        rows, _ = Rows.of(traces).believable(shipped(), seed)
        told.append(score(hold_out(model_of(shipped(), seed), rows, shipped(), seed=seed)[0]))
    mean = 100 * np.mean([each.mean_relative_error for each in told])
    median = 100 * np.mean([each.median_relative_error for each in told])
    inside = 100 * np.mean([each.coverage_80_frac for each in told])
    reached = f"{mean:.1f}, {median:.1f} %; {inside:.1f}"
    figure = "Gavel, 5-fold: mean, median error; in 80 %"
    yield figure, "≤ 5.0, 3.0 %; 78–82", reached


def _made(asked: argparse.Namespace) -> Iterator[_Row]:
    for count in (200, 500):
        started_s, inside = time.process_time(), []
        for seed in range(asked.seeds):
            rows, _ = Rows.of(made_grid(count, seed)).believable(shipped(), seed)
            held, _ = hold_out(model_of(shipped(), seed), rows, shipped(), seed=seed)
            inside.append(score(held).coverage_80_frac)
        took_s = (time.process_time() - started_s) / asked.seeds
        figure = f"made grid of {count} rows: in 80 %; processor time"
        yield figure, "76–84 %; ≤ 120 s", f"{100 * np.mean(inside):.1f} %; {took_s:.0f} s"


def _stream(asked: argparse.Namespace) -> Iterator[_Row]:
    found = pd.concat([walked(seed) for seed in range(asked.seeds)])
    usual = found[~found["late"] & (found["before"] >= 3)]["error"].mean()
    late = found[found["late"]].groupby("before")["error"].mean()
    yield "stream, after 3 runs of a recipe: mean error", "≤ 10 %", f"{usual:.1%}"
    yield "after an update that slows all, from the 6th run on", "≤ 10 %", f"{late[5:].mean():.1%}"


def _speed_ups(asked: argparse.Namespace) -> Iterator[_Row]:
    traces = parse(GAVEL.read_bytes(), GAVEL.name, "gavel").traces
    for gpus, pairs in sorted(speed_ups(traces, asked.seeds).items()):
        said, true = np.array(pairs).T
        reached = f"{np.abs(said / true - 1).mean():.1%}, {said.max():.2f}"
        yield f"speed-up on {gpus} GPUs: mean error, largest said", f"≤ 8 %, {gpus}", reached


def _unseen(asked: argparse.Namespace) -> Iterator[_Row]:
    figure = "an unseen GPU type, all sources: median, mean error"
    yield figure, "≤ 10, 20 %", _both(_measured(asked).said("gpu_type"))


def _own(asked: argparse.Namespace) -> Iterator[_Row]:
    figure = "a source but for three of its runs: median, mean error"
    yield figure, "≤ 15 %", _both(_measured(asked).own_known(asked.seeds))


def _measured(asked: argparse.Namespace) -> Measured:
    return all_measured(asked.folder, asked.mirrors, rows=30)


def _both(held: HeldOut) -> str:
    got = score(held)
    return f"{100 * got.median_relative_error:.1f}, {100 * got.mean_relative_error:.1f} %"


def _size(_: argparse.Namespace) -> Iterator[_Row]:
    folder = Path(__file__).parents[1] / "headway" / "estimate"
    lines = sum(code_lines(path.read_text()) for path in folder.rglob("*.py"))
    yield "code lines of headway/estimate", "≤ 3,000", f"{lines:,}"
    installed = {"pip", "setuptools"}
    _add_needed("headway", installed)
    sizes = [each.locate() for name in installed for each in distribution(name).files or ()]
    total = sum(path.stat().st_size for path in map(Path, sizes) if path.is_file())
    yield (
        "what a node installs, without extras",
        "≤ 850 MB",
        f"{total / 1e6:.0f} MB",
    )


def _add_needed(name: str, found: set[str]) -> None:
    """Add the distribution called *name*, and all that it needs here."""
    found.add(name)
    for needed in map(Requirement, distribution(name).requires or ()):
        plain = canonicalize_name(needed.name)
        if plain not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            _add_needed(plain, found)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[_Row]]] = {
    "size": _size,
    "stream": _stream,
    "folds": _folds,
    "grids": _made,
    "speed_up": _speed_ups,
    "gpu_type": _unseen,
    "own": _own,
}


if __name__ == "__main__":
    main()
