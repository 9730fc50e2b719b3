"""How well times on more GPUs follow from times on fewer, packed on one node and spread over many.

Of each workload of `tests/data/runtime-gavel.csv` the times on some numbers of GPUs are given, and
those on another number are predicted, by the product's own model and as if they scaled linearly.

    PYTHONPATH=. python benchmarks/scaling.py [--json FILE]
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from headway.estimate.scaling import Point, scaled

ROOT = Path(__file__).resolve().parents[1]
PARTS = (((1, 2, 4), 8), ((1, 2), 8), ((1, 2), 4), ((1,), 8))
_Workloads = dict[tuple[str, str, str], list[Point]]


def workloads() -> _Workloads:
    """Points of each network, GPU type and batch size."""
    found: _Workloads = defaultdict(list)
    with (ROOT / "tests/data/runtime-gavel.csv").open() as file:
        for row in csv.DictReader(file):
            point = Point(int(row["gpus"]), int(row["nodes"]), float(row["iteration_s"]))
            found[row["network"], row["gpu_type"], row["batch_size"]].append(point)
    return found


def score(every: _Workloads, given: Sequence[int], asked: int) -> list[dict[str, Any]]:
    """Errors on *asked* GPUs where the numbers *given* are known; a row for each placement."""
    seen = defaultdict(list)
    for (_, gpu_type, _), points in every.items():
        known = [point for point in points if point.gpus in given]
        for point in points:
            if point.gpus == asked:
                said = scaled(known, asked, point.nodes)
                largest = max(known, key=lambda each: (each.nodes == point.nodes, each.gpus))
                linear = largest.seconds * largest.gpus / asked
                where = "spread" if point.nodes > 1 else "packed"
                row = (
                    abs(said.seconds / point.seconds - 1),
                    abs(linear / point.seconds - 1),
                    said.low_s <= point.seconds <= said.high_s,
                )
                for group in (where, f"{where}, {gpu_type}", "all"):
                    seen[group].append(row)
    return [
        {
            "given": list(given),
            "asked": asked,
            "of": group,
            "count": len(rows),
            "median_error_frac": median(error for error, _, _ in rows),
            "mean_error_frac": mean(error for error, _, _ in rows),
            "linear_median_error_frac": median(error for _, error, _ in rows),
            "coverage_frac": mean(inside for _, _, inside in rows),
        }
        for group, rows in sorted(seen.items())
    ]


def main() -> None:
    """Print a row for each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    every = workloads()
    rows = [row for given, asked in PARTS for row in score(every, given, asked)]
    print("| given | asked | of | rows | median | mean | in 80 % | linear, median |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {', '.join(map(str, row['given']))} | {row['asked']} | {row['of']} | "
            f"{row['count']} | {row['median_error_frac']:.1%} | {row['mean_error_frac']:.1%} | "
            f"{row['coverage_frac']:.0%} | {row['linear_median_error_frac']:.1%} |"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
