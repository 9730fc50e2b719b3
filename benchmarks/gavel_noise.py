"""How far the measured configurations contradict themselves: a floor for any model's error.

    python benchmarks/gavel_noise.py [--traces FILE] [--seeds 1]

A larger batch on the same GPUs takes no less time, and a step in which each GPU
takes a batch takes no less time on more GPUs. Curves that only rise are fitted to the very rows
they are compared with: what is left is noise of the measurements, which no
such model can predict. Beside it the champion's error on held-out rows.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.isotonic import IsotonicRegression

from benchmarks.held_out import Rows, hold_out, model_of
from headway.estimate.physics import shipped
from headway.estimate.trace_files import parse

GAVEL = Path(__file__).parents[1] / "tests" / "data" / "runtime-gavel.csv"


def main() -> None:
    """Print one row for each kind of configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=GAVEL)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    traces = parse(asked.traces.read_bytes(), asked.traces.name, "benchmark").traces
    rows = Rows.of(traces)
    names = {"network": "network", "gpu_type": "gpu", "gpus": "gpus", "batch_size": "batch"}
    table = rows.X[[*names]].rename(columns=names)
    table = table.assign(spread=rows.X["nodes"] > 1, seconds=rows.seconds)
    by_batch = contradiction(table, ["network", "gpu", "gpus", "spread"], "batch", "seconds")
    by_count = contradiction(table, ["network", "gpu", "batch", "spread"], "gpus", "seconds")
    table["floor"] = np.maximum(by_batch, by_count)
    errors = [
        np.abs(
            hold_out(model_of(shipped(), seed), rows, shipped(), seed=seed)[0].said_s[:, 1]
            / rows.seconds
            - 1
        )
        for seed in range(asked.seeds)
    ]  # fmt: skip
    table["error"] = np.mean(errors, axis=0)
    several = table.groupby(["network", "gpu"]).seconds.transform("size") > 1
    kinds = np.where(table.spread, "spread over nodes", "on one node")
    table["kind"] = np.where(several, table.gpu + " " + kinds, "the network's only row on its GPU")
    print("| configurations | rows | floor: mean | p95 | error: mean | median | p95 |")
    print("|---|---|---|---|---|---|---|")
    for kind, group in [*table.groupby("kind"), ("all", table)]:
        cells = (group.floor.mean(), group.floor.quantile(0.95), group.error.mean(),
                 group.error.median(), group.error.quantile(0.95))  # fmt: skip
        print(f"| {kind} | {len(group)} | {' | '.join(f'{100 * c:.1f}' for c in cells)} |")


def contradiction(table: pd.DataFrame, same: list[str], rising: str, value: str) -> "pd.Series":
    """Relative error of the best curve of *value* that never falls with *rising*, row by row."""
    found = pd.Series(0.0, index=table.index)
    for _, rows in table.dropna(subset=[rising]).groupby(same):
        ordered = rows.sort_values(rising)
        logs = np.log(ordered[value])
        curve = IsotonicRegression().fit_transform(np.arange(len(ordered)), logs)
        found[ordered.index] = np.abs(np.exp(curve - logs) - 1)
    return found


if __name__ == "__main__":
    main()
