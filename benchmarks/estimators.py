"""The tables of docs/development/estimates.md: errors by folds and groups, learning curve, speed.

    PYTHONPATH=. python benchmarks/estimators.py [--seeds 5] [--part folds|gpu_type|…] [--models gp]
    PYTHONPATH=. python benchmarks/estimators.py --part folds --seeds 1 --charts FOLDER
    PYTHONPATH=. python benchmarks/estimators.py --part speed --count 50000   a refit's time, memory
    PYTHONPATH=. python benchmarks/estimators.py --part grid --seeds 3        made rows, known noise
    PYTHONPATH=. python benchmarks/estimators.py --part speed_up --seeds 1    on 2, 4, 8 GPUs
    PYTHONPATH=. python benchmarks/estimators.py --part source --seeds 3      one source left out
    PYTHONPATH=. python benchmarks/estimators.py --part stream --seeds 2      a stream, an update
    PYTHONPATH=. python benchmarks/estimators.py --part night --count 20000   who wins what; a refit
    PYTHONPATH=. python benchmarks/estimators.py --part folds --models gp --seeds 2 \
        --traces tests/data/runtime-timm.csv [--nameless]   networks never seen
    PYTHONPATH=. python benchmarks/estimators.py --part gpu_type --models gp \
        --facts tests/data/measured-gpus                    GPUs by published measurements

Prints one Markdown table for each part, and draws the errors and the calibration of the last seed
where a folder for charts is given. Takes about half an hour in all on two cores.
"""

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from benchmarks.estimator_charts import calibration_chart, cumulative_error
from benchmarks.held_out import Rows, hold_out, model_of
from benchmarks.paper_models import PAPER_MODELS, paper_model
from benchmarks.run_stream import streams
from headway.clock import SystemClock
from headway.estimate.duration.time_model import CHAMPION
from headway.estimate.estimator import Estimators
from headway.estimate.evaluation.evaluate import HeldOut, Score, score
from headway.estimate.evaluation.retrain import retrain
from headway.estimate.evaluation.tournament import tournament
from headway.estimate.features import from_trace
from headway.estimate.frame import configurations_of
from headway.estimate.physics import Tables, shipped, with_site
from headway.estimate.regressors import Estimator
from headway.estimate.trace_files import parse
from headway.model.trace import Trace
from headway.units import format_size
from headway.views.tables import told

GAVEL = Path(__file__).parents[1] / "tests" / "data" / "runtime-gavel.csv"
TIMM = GAVEL.with_name("runtime-timm.csv")
PARTS = (
    *("folds", "gpu_type", "gpus", "network", "curve", "speed", "grid", "speed_up", "night"),
    *("source", "stream"),
)
MODELS = (CHAMPION, *PAPER_MODELS)
_HEAD = "mean | median | p95 | ≤ 10 % | ≤ 20 % | in 80 % | width | all fits s"


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=GAVEL)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--count", type=int, default=10_000, help="traces of the part speed")
    parser.add_argument("--nameless", action="store_true", help="nothing is known of networks")
    parser.add_argument("--facts", type=Path, help="folder with a gpus.csv that wins")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--charts", type=Path, help="folder for charts of each part")
    asked = parser.parse_args()
    traces = parse(asked.traces.read_bytes(), asked.traces.name, "benchmark").traces
    models = asked.models.split(",")
    tables = with_site(asked.facts) if asked.facts else shipped()
    tables = Tables(tables.gpus) if asked.nameless else tables
    alone = {
        "speed": partial(speed, asked.count),
        "grid": partial(grids, asked.seeds, tables),
        "night": partial(night, traces, tables, asked.count),
        "speed_up": partial(speed_ups_said, traces, asked.seeds),
        "source": partial(sources_left_out, asked.seeds, tables),
        "stream": partial(streams, asked.seeds),
        "curve": partial(curve, traces, asked.seeds),
    }
    for part in asked.part or PARTS:
        print(f"\n### {part}\n", flush=True)
        if part in alone:
            alone[part]()
        elif part == "folds":
            draw(table(lambda _: traces, models, None, asked.seeds, tables), part, asked.charts)
        else:
            draw(table(lambda _: traces, models, part, 1, tables), part, asked.charts)


def grids(seeds: int, tables: Tables) -> None:
    """Errors and coverage on made rows of two numbers."""
    for count in (200, 500):
        print(f"\n{count} rows\n")
        table(partial(made_grid, count), [CHAMPION], None, seeds, tables)


def called(model: str, seed: int, tables: Tables) -> Estimator:
    """The model called *model*, not fitted."""
    return model_of(tables, seed) if model == CHAMPION else paper_model(model, seed)


def table(
    traces: Callable[[int], Sequence[Trace]],
    models: list[str],
    leave_out: str | None,
    seeds: int,
    tables: Tables,
) -> dict[str, HeldOut]:
    """One row a model, the mean over *traces* and folds of each seed; what the last held out."""
    print(f"| model | {_HEAD} |\n|---|{'---|' * 8}")
    found: dict[str, HeldOut] = {}
    for model in models:
        scores, clock = [], SystemClock()
        started_s = clock.monotonic_s()
        for seed in range(seeds):
            rows, _ = Rows.of(traces(seed)).believable(tables, seed)
            asked = called(model, seed, tables)
            found[model], _ = hold_out(asked, rows, tables, leave_out=leave_out, seed=seed)
            scores.append(score(found[model]))
        took_s = (clock.monotonic_s() - started_s) / seeds
        print(f"| {model} | {cells(scores)} | {took_s:.1f} |", flush=True)
    return found


def draw(held: dict[str, HeldOut], part: str, folder: Path | None) -> None:
    """Both charts of *part*, where a *folder* was given."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{part}-errors.png").write_bytes(cumulative_error(held))
        (folder / f"{part}-calibration.png").write_bytes(calibration_chart(held))


def cells(scores: list[Score]) -> str:
    """The figures of *scores*, averaged."""
    mean = {k: float(np.mean([asdict(s)[k] for s in scores])) for k in asdict(scores[0])}
    shares = [f"{100 * v:.1f}" for k, v in mean.items() if k.endswith(("error", "frac"))]
    return " | ".join([*shares, f"{mean['width_80']:.2f}"])


def curve(traces: tuple[Trace, ...], seeds: int) -> None:
    """Errors on all other traces after so many were seen."""
    print(f"| traces | {_HEAD.removesuffix(' | all fits s')} |\n|---|{'---|' * 7}")
    found: dict[int, list[Score]] = {}
    for seed in range(seeds):
        got = learning_curve(traces, (25, 50, 100, 200), seed)
        for size, each in got.items():
            found.setdefault(size, []).append(each)
    for size, scores in found.items():
        print(f"| {size} | {cells(scores)} |", flush=True)


def learning_curve(
    traces: tuple[Trace, ...], sizes: tuple[int, ...], seed: int
) -> dict[int, Score]:
    """Scores of the champion when it has seen so many random traces, on all others."""
    rows = Rows.of(traces)
    order = np.random.default_rng(seed).permutation(len(rows.seconds))
    found = {}
    for size in sizes:
        seen, held = order[:size], order[size:]
        model = model_of(shipped(), seed).fit(rows.X.iloc[seen], rows.seconds[seen])
        said_s = model.predict_quantiles(rows.X.iloc[held])
        found[size] = score(HeldOut(rows.seconds[held], said_s))
    return found


def sources_left_out(seeds: int, tables: Tables) -> None:
    """Errors on each source by all others and so many of its own rows, drawn for each seed."""
    sources = {file.stem: parse(file.read_bytes(), file.name, "b").traces for file in (GAVEL, TIMM)}
    print(f"| source, own rows | {_HEAD.removesuffix(' | all fits s')} |\n|---|{'---|' * 7}")
    for left_out, own in sources.items():
        others = [t for name, each in sources.items() if name != left_out for t in each]
        for count in (3, 30):
            scores = []
            for seed in range(seeds):
                rows = Rows.of([*own, *others])
                mine = np.random.default_rng(seed).permutation(len(own))
                seen = np.concatenate([mine[:count], np.arange(len(own), len(rows.seconds))])
                model = model_of(tables, seed).fit(rows.X.iloc[seen], rows.seconds[seen])
                said_s = model.predict_quantiles(rows.X.iloc[mine[count:]])
                scores.append(score(HeldOut(rows.seconds[mine[count:]], said_s)))
            print(f"| {left_out}, {count} | {cells(scores)} |", flush=True)


def speed_ups(traces: tuple[Trace, ...], seeds: int) -> dict[int, list[tuple[float, float]]]:
    """By GPUs the speed-ups over one, said, as `headway estimate` bounds them, and measured."""
    by_gpus: dict[int, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        rows = Rows.of(traces)
        held, _ = hold_out(model_of(shipped(), seed), rows, shipped(), seed=seed)
        alone, asked = {}, configurations_of(rows.X)
        for at, c in enumerate(asked):
            if c.gpus == 1:
                seconds = float(held.said_s[at, 1]), float(rows.seconds[at])
                alone[c.network, c.gpu_type, c.batch_size] = seconds
        for at, c in enumerate(asked):
            one = alone.get((c.network, c.gpu_type, c.batch_size))
            if one is not None and c.gpus > 1:
                faster = c.gpus * one[0] / float(held.said_s[at, 1])  # a step takes more samples
                pair = min(faster, c.gpus), c.gpus * one[1] / float(rows.seconds[at])
                by_gpus.setdefault(c.gpus, []).append(pair)
    return by_gpus


def speed_ups_said(traces: tuple[Trace, ...], seeds: int) -> None:
    """Errors of speed-ups over one GPU, each row held out."""
    by_gpus = speed_ups(traces, seeds)
    print("| GPUs | rows | mean error | median error | largest said |\n|---|---|---|---|---|")
    for gpus, pairs in sorted(by_gpus.items()):
        said_, true = np.array(pairs).T
        error = np.abs(said_ / true - 1)
        print(
            f"| {gpus} | {len(pairs) // seeds} | {error.mean():.1%} | {np.median(error):.1%} | "
            f"{said_.max():.2f} |",
            flush=True,
        )


def made_grid(count: int, seed: int = 0) -> list[Trace]:
    """*count* rows of the grid of AI Gauge's paper, with a noise of 5 %; others for each *seed*."""
    rng = np.random.default_rng(seed)
    speeds = {"k80": 1.0, "p100": 2.6, "v100": 4.4}
    networks = {
        "resnet-50": (0.010, 0.045),
        "vgg16": (0.018, 0.135),
        "alexnet": (0.002, 0.105),
        "inception-v3": (0.012, 0.038),
    }
    sizes = product(networks, speeds, (1, 2, 4), (16, 32, 64, 128), (1, 2, 4, 8))
    cells = list(sizes)
    traces = []
    for at in rng.choice(len(cells), count, replace=False):
        network, gpu, gpus, batch, threads = cells[at]
        sample_s, sum_s = networks[network]
        train_s, load_s = sample_s * (batch + 6) / speeds[gpu], 0.004 * batch / threads
        step_s = max(train_s, load_s) + 0.2 * min(train_s, load_s) + sum_s * (gpus - 1) / gpus
        seconds = step_s * float(np.exp(rng.normal(0, 0.05)))
        trace = Trace(network, gpu, gpus, batch, iteration_s=seconds, data_threads=threads)
        traces.append(trace)
    return traces


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
    before, started_s = peak_memory(), clock.monotonic_s()
    estimators = Estimators.fit(traces, fitted_at=datetime(2026, 1, 1, tzinfo=UTC))
    fit_s = clock.monotonic_s() - started_s
    memory = f"peak memory {peak_memory()}, {before} before it"
    print(f"fit of {count} traces: {fit_s:.1f} s, {memory}", flush=True)
    asked = [from_trace(t) for t in traces[:1000]]
    started_s = clock.monotonic_s()
    estimators.predict(asked)
    print(f"1,000 predictions: {clock.monotonic_s() - started_s:.2f} s", flush=True)


def night(traces: Sequence[Trace], tables: Tables, count: int) -> None:
    """Who predicts which kind of question best, and what a refit of few and many traces takes."""
    met = tournament(traces, tables, clock=SystemClock())
    if met is not None:
        for rows in (met.table, met.calibration, met.worst):
            print(pd.DataFrame(told(rows)).to_string(index=False), "\n")
        print(met.words())
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for number in (20, count):
        made = [
            replace(t, owner=f"p{i % 20}", started_at=at + timedelta(minutes=i))
            for i, t in enumerate(made_up(number))
        ]
        before_s = time.process_time()
        with TemporaryDirectory() as folder:
            done = retrain(made, Path(folder), fitted_at=at, clock=SystemClock())
        took_s, words = time.process_time() - before_s, done.tournament and done.tournament.words()
        print(f"refit of {number} traces: {took_s:.0f} s of one core. {words}", flush=True)


def peak_memory() -> str:
    """Most that this process has held so far."""
    return format_size(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main()
