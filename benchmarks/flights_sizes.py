"""Real runs of the flights sample at eight sizes: predicted against measured.

    python benchmarks/flights_sizes.py [--rounds 20 40]

Needs a running site (`headway up`). Submits each size, waits for it, then
predicts every run by estimators that were fitted without any run of its size.
"""

import argparse
import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from headway.estimate.estimator import Estimators
from headway.estimate.features import from_trace
from headway.settings import Settings
from headway.site import current_site
from headway.units import format_duration, format_size

SIZES = (20_000, 40_000, 80_000, 120_000, 160_000, 200_000, 260_000, 320_000)
BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run, predict, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs="+", default=[20, 40])
    asked = parser.parse_args()
    settings = Settings()
    runs = [run(settings, rows, rounds) for rounds in asked.rounds for rows in SIZES]
    traces = [trace for trace in current_site().ledger.traces.all("site") if trace.run_id in runs]
    print("| rows | rounds | runtime predicted | measured | host predicted | measured |")
    print("|---|---|---|---|---|---|")
    errors, reserved = [], []
    for trace in sorted(traces, key=lambda t: (t.epochs or 0, t.dataset_samples or 0)):
        others = [t for t in traces if t.dataset_samples != trace.dataset_samples]
        fitted = Estimators.fit(others, fitted_at=current_site().ledger.now())
        (said,) = fitted.predict([from_trace(dataclasses.replace(trace, iterations=None))])
        predicted = (said.runtime_s, said.runtime_low_s, said.runtime_high_s, said.host_peak_bytes)
        measured = (trace.runtime_s, trace.host_peak_bytes)
        runtime_s, low_s, high_s, host_bytes = (each or math.nan for each in predicted)
        took_s, peak_bytes = (each or math.nan for each in measured)
        interval = f"{format_duration(low_s)} to {format_duration(high_s)}"
        print(
            f"| {trace.dataset_samples:,} | {trace.epochs:g} | {format_duration(runtime_s)} "
            f"({interval}) | {format_duration(took_s)} | {format_size(int(host_bytes))} "
            f"| {format_size(int(peak_bytes))} |"
        )
        errors.append(abs(runtime_s / took_s - 1))
        reserved.append(host_bytes / peak_bytes - 1)
    errors.sort()
    reserved.sort()
    print(f"\nruntime: mean error {sum(errors) / len(errors):.1%}, median {_median(errors):.1%}")
    print(f"host memory: median over-reservation {_median(reserved):.1%}, ", end="")
    print(f"{sum(r < 0 for r in reserved)} of {len(reserved)} below the peak")


def run(settings: Settings, rows: int, rounds: int) -> str:
    """One run of *rows* flights; the id of its trace."""
    data = settings.home / "samples" / f"flights-{rows}.csv"
    if not data.exists():
        data.parent.mkdir(parents=True, exist_ok=True)
        prepare = [sys.executable, "-m", "samples.flights.prepare", "--rows", str(rows), str(data)]
        subprocess.run(prepare, cwd=ROOT, check=True)
    job = {
        "name": "flights",
        "image": "headway-samples:local",
        "command": ["python", "-m", "samples.flights.train", "--rounds", str(rounds)],
        "dataset": {"uri": str(data)},
        "resources": {"cpus": 2, "host_memory": "2GiB"},
        "training": {
            "framework": "scikit-learn",
            "network": "hist-gradient-boosting",
            "epochs": rounds,
            "samples": rows,
        },
    }
    path = settings.home / "samples" / "sizes.json"
    path.write_text(json.dumps(job))
    done: Any = subprocess.run(
        [str(BIN / "headway"), "submit", str(path), "--watch", "--json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    view = json.loads(done.stdout)
    took = view["measured"]["runtime_s"]
    print(f"{rows:,} rows, {rounds} rounds: {view['state']}, {took:.1f} s", file=sys.stderr)
    return f"{view['run_id']}-{view['attempt']}"


def _median(values: list[float]) -> float:
    return values[len(values) // 2]


if __name__ == "__main__":
    main()
