"""The tables of docs/estimates.md: errors by folds and by groups left out, learning curve, speed.

    python benchmarks/estimators.py [--traces FILE] [--seeds 5] [--part folds|gpu_type|…|speed]
    python benchmarks/estimators.py --part speed --count 30000      time and peak memory of a refit

Prints one Markdown table for each part. Takes about half an hour in all on two cores.
"""

import argparse
import resource
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from headway.clock import SystemClock
from headway.estimate.estimator import Estimators
from headway.estimate.evaluation.evaluate import MODELS, LeaveOut, Score, evaluate, learning_curve
from headway.estimate.features import from_trace
from headway.estimate.physics import shipped
from headway.estimate.trace_files import parse
from headway.model.trace import Trace
from headway.units import format_size

GAVEL = Path(__file__).parents[1] / "tests" / "data" / "runtime-gavel.csv"
PARTS = ("folds", "gpu_type", "gpus", "network", "curve", "speed")
_HEAD = "mean | median | p95 | ≤ 10 % | ≤ 20 % | in 80 % | width | fit s | predict s"


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=GAVEL)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--count", type=int, default=10_000, help="traces of the part speed")
    parser.add_argument("--models", default=",".join(MODELS))
    asked = parser.parse_args()
    traces = parse(asked.traces.read_bytes(), asked.traces.name, "benchmark").traces
    models = asked.models.split(",")
    for part in asked.part or PARTS:
        print(f"\n### {part}\n", flush=True)
        if part == "speed":
            speed(asked.count)
        elif part == "curve":
            curve(traces, asked.seeds)
        elif part == "folds":
            table(traces, models, None, asked.seeds)
        else:
            table(traces, models, LeaveOut(part), 1)


def table(
    traces: tuple[Trace, ...], models: list[str], leave_out: LeaveOut | None, seeds: int
) -> None:
    """One row a model, the mean over *seeds*."""
    print(f"| model | {_HEAD} |\n|---|{'---|' * 9}")
    for model in models:
        scores = [
            evaluate(
                traces, clock=SystemClock(), tables=shipped(), leave_out=leave_out, seed=s,
                models=[model],
            ).models[model]
            for s in range(seeds)
        ]  # fmt: skip
        print(f"| {model} | {cells(scores)} |", flush=True)


def cells(scores: list[Score]) -> str:
    """The figures of *scores*, averaged."""
    mean = {k: float(np.mean([asdict(s)[k] for s in scores])) for k in asdict(scores[0])}
    shares = [f"{100 * v:.1f}" for k, v in mean.items() if k.endswith(("error", "frac"))]
    rest = [f"{mean[k]:.2f}" for k in ("width_80", "fit_s", "predict_s")]
    return " | ".join(shares + rest)


def curve(traces: tuple[Trace, ...], seeds: int) -> None:
    """Errors on all other traces after so many were seen."""
    print(f"| traces | {_HEAD} |\n|---|{'---|' * 9}")
    found: dict[int, list[Score]] = {}
    for seed in range(seeds):
        got = learning_curve(
            traces, (25, 50, 100, 200), tables=shipped(), clock=SystemClock(), seed=seed
        )
        for size, each in got.items():
            found.setdefault(size, []).append(each)
    for size, scores in found.items():
        print(f"| {size} | {cells(scores)} |", flush=True)


def made_up(count: int) -> list[Trace]:
    """*count* traces of thirty networks on six GPU types."""
    rng = np.random.default_rng(0)
    speeds = {"k80": 1, "t4": 2, "p100": 3, "rtx2080ti": 4, "v100": 5, "a100": 10}
    traces = []
    for _ in range(count):
        network, gpu = int(rng.integers(30)), str(rng.choice(list(speeds)))
        batch, gpus = int(2 ** rng.integers(3, 9)), int(2 ** rng.integers(0, 4))
        busy_s = 0.01 + (network + 1) * batch * 1e-3 / speeds[gpu]
        iteration_s = busy_s * (1 + 0.1 * np.log2(gpus)) * float(np.exp(rng.normal(0, 0.05)))
        traces.append(Trace(f"net{network}", gpu, gpus, batch, iteration_s=iteration_s))
    return traces


def speed(count: int) -> None:
    """Seconds and peak memory to fit *count* made-up traces, and seconds to predict a thousand."""
    traces, clock = made_up(count), SystemClock()
    started_s = clock.monotonic_s()
    estimators = Estimators.fit(traces, fitted_at=datetime(2026, 1, 1, tzinfo=UTC))
    fit_s = clock.monotonic_s() - started_s
    peak = format_size(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(f"fit of {count} traces: {fit_s:.1f} s, peak memory {peak}", flush=True)
    asked = [from_trace(t) for t in traces[:1000]]
    started_s = clock.monotonic_s()
    estimators.predict_all(asked, [0.0] * 1000)
    print(f"1,000 predictions: {clock.monotonic_s() - started_s:.2f} s", flush=True)


if __name__ == "__main__":
    main()
