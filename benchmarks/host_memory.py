"""Host memory after ten traces of a recipe: what is reserved against what was needed.

    python benchmarks/host_memory.py [--digits 12] [--traces FILE]

Takes the traces of a running site, of `flights_sizes.py` for example, or those
of FILE (`headway traces export`). `--digits N` first runs the digits sample N
times, each with a network of another width. Every run is predicted again and
again from ten others of its recipe, chosen at random.
"""

import argparse
import math
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from headway.estimate.features import from_trace
from headway.estimate.memory import HOST_TERMS, MemoryModel, Peak
from headway.estimate.trace_files import parse
from headway.model.trace import Trace
from headway.site import current_site
from headway.units import MIB

TEN, DRAWS = 10, 40
BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run what is asked for, then print a row for each recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digits", type=int, default=0, metavar="N")
    parser.add_argument("--traces", type=Path)
    asked = parser.parse_args()
    for number in range(asked.digits):
        run_digits(round(16 * 1.6**number), epochs=10 + 10 * (number % 3))
    print("| recipe | runs | peaks | median over-reservation | 95 % of runs | killed |")
    print("|---|---|---|---|---|---|")
    everything: list[float] = []
    for recipe, peaks in by_recipe(read(asked.traces)).items():
        if len(peaks) > TEN:
            over = over_reservations(peaks)
            everything += over
            sizes = [p.peak_bytes / MIB for p in peaks]
            span = f"{min(sizes):.0f} to {max(sizes):.0f} MiB"
            print(f"| {recipe[:24]} | {len(peaks)} | {span} | {figures(over)} |")
    print(f"| all | | | {figures(everything)} |")


def run_digits(width: int, epochs: int) -> None:
    """One run of the digits sample with *width* hidden units."""
    train = f'["python","-m","samples.digits.train","--hidden","{width}","--epochs","{epochs}"]'
    options = [f"--set=command={train}", f"--set=training.epochs={epochs}"]
    sample = str(ROOT / "samples" / "digits" / "job.yaml")
    command = [str(BIN / "headway"), "submit", sample, *options, "--watch"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    print(f"digits, {width} units, {epochs} epochs: done", file=sys.stderr)


def read(path: Path | None) -> list[Trace]:
    """The traces in *path*; of the running site when None."""
    if path is None:
        return current_site().ledger.traces.all("site")
    return list(parse(path.read_bytes(), path.name, "file").traces)


def by_recipe(traces: list[Trace]) -> dict[str, list[Peak]]:
    """Host memory peaks of runs that ended well, oldest first."""
    ended = [t for t in traces if t.exit == "ok"]
    ended.sort(key=lambda t: t.started_at or datetime.min.replace(tzinfo=UTC))
    found: dict[str, list[Peak]] = {}
    for trace in ended:
        if trace.host_peak_bytes:
            peak = Peak(from_trace(trace), trace.host_peak_bytes)
            found.setdefault(peak.configuration.recipe, []).append(peak)
    return found


def over_reservations(peaks: list[Peak]) -> list[float]:
    """What is reserved over what was needed, less one, for each run and each draw of ten others."""
    rng = np.random.default_rng(0)
    found = []
    for number, peak in enumerate(peaks):
        others = [p for i, p in enumerate(peaks) if i != number]
        for _ in range(DRAWS):
            seen = [others[i] for i in rng.choice(len(others), TEN, replace=False)]
            upper = MemoryModel.fit(seen, HOST_TERMS).upper_bytes(peak.configuration)
            found.append((upper or math.nan) / peak.peak_bytes - 1)
    return found


def figures(over: list[float]) -> str:
    """Median and 95th percentile of *over*, and the share below zero."""
    killed = sum(each < 0 for each in over)
    middle, high = np.median(over), np.quantile(over, 0.95)
    return f"{middle:.1%} | {high:.1%} | {killed} of {len(over)} ({killed / len(over):.2%})"


if __name__ == "__main__":
    main()
