"""headway against EASY on variants of traces: what a trace that nobody has seen may look like.

python benchmarks/replay_matrix.py A.csv B.csv [--only TEXT]… [--set KNOB=VALUE]… [--conservative]

A is replayed on 6 × 8 GPUs, B on 2 × 8, and variants of both: halves, weeks drawn anew, other
loads, other shapes, several teams, gangs, both together; and made-up streams. Predictions walk
forward from a cold start, shared GPUs are as slow as measured pairs. Each row has headway's mean
and longest wait by those of EASY with the users' limits and whole GPUs (Slurm's way), and by those
of EASY with headway's estimates and sharing.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headway.policy.settings import PolicySettings
from headway.replay.cluster import Shape
from headway.replay.metrics import document
from headway.replay.simulate import PolicyName, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing, read_jobs
from headway.units import DAY_S, GIB, HOUR_S

Document = dict[str, Any]
RATIOS = ("mean_wait_s", "max_wait_s")
SLURM = (PolicyName.EASY, Estimates.USER, GpuSharing.WHOLE), (0.35, 1.20)
ALIKE = (PolicyName.EASY, Estimates.LEARNED, GpuSharing.HEADWAY), (0.50, 1.20)
CONSERVATIVE = (PolicyName.CONSERVATIVE, Estimates.LEARNED, GpuSharing.HEADWAY), (0.50, 1.20)
"""Rivals with what they are told and who shares, and the targets for the ratios."""
OURS = PolicyName.HEADWAY, Estimates.LEARNED, GpuSharing.HEADWAY


@dataclass(frozen=True)
class Variant:
    """A trace, and the cluster it is replayed on."""

    name: str
    rows: pd.DataFrame
    nodes: int
    gpus: int


def variants(a: pd.DataFrame, b: pd.DataFrame) -> Iterator[Variant]:
    """All of them, the given traces first."""
    for name, rows, nodes in (("a", a, 6), ("b", b, 2)):
        yield Variant(name, rows, nodes, 8)
        middle = float(rows["submit_s"].median())
        yield Variant(f"{name}, first half of its jobs", rows[rows["submit_s"] <= middle], nodes, 8)
        yield Variant(f"{name}, second half of its jobs", rows[rows["submit_s"] > middle], nodes, 8)
        for seed in (1, 2, 3):
            yield Variant(f"{name}, weeks drawn anew ({seed})", _weeks(rows, seed), nodes, 8)
        for load in (0.7, 0.8, 1.15, 1.3):
            yield Variant(f"{name}, {load} × the load", _load(rows, load), nodes, 8)
        for seed, share in ((1, 0.8), (2, 0.7), (3, 0.5)):
            some = rows.sample(frac=share, random_state=seed).sort_values("submit_s")
            yield Variant(f"{name}, {share:.0%} of its jobs", some, nodes, 8)
        yield Variant(f"{name}, five teams", _teams(rows, 5), nodes, 8)
        yield Variant(f"{name}, more gangs", _gangs(rows, nodes * 8), nodes, 8)
    for rows, nodes, gpus in ((a, 12, 4), (a, 3, 16), (a, 8, 6), (a, 5, 8), (a, 7, 8)):
        yield Variant(f"a on {nodes} × {gpus}", rows, nodes, gpus)
    for rows, nodes, gpus in ((b, 4, 4), (b, 1, 16), (b, 8, 2), (b, 3, 8)):
        yield Variant(f"b on {nodes} × {gpus}", rows, nodes, gpus)
    yield Variant("a and b on 8 × 8", _merged(a, b), 8, 8)
    yield Variant("a and b on 6 × 8", _merged(a, b), 6, 8)
    for load, seed in ((0.7, 1), (0.9, 2), (1.1, 3)):
        for nodes, gpus in ((4, 4), (8, 8)):
            made = _made_up(load, nodes, gpus, seed)
            yield Variant(f"made up, load {load}, {nodes} × {gpus}", made, nodes, gpus)


def _weeks(rows: pd.DataFrame, seed: int) -> pd.DataFrame:
    """As many weeks as there are, each one of its weeks at random."""
    week = (rows["submit_s"] // (7 * DAY_S)).astype(int)
    drawn = np.random.default_rng(seed).integers(0, week.max() + 1, week.max() + 1)
    parts = []
    for at, one in enumerate(drawn):
        part = rows[week == one].copy()
        part["submit_s"] += (at - one) * 7 * DAY_S
        part["job_id"] += f"-{at}"
        parts.append(part)
    return pd.concat(parts)


def _load(rows: pd.DataFrame, load: float) -> pd.DataFrame:
    return rows.assign(submit_s=rows["submit_s"] / load)


def _teams(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    share = np.arange(count, 0, -1) / np.arange(1, count + 1).sum()
    return rows.assign(
        team=np.random.default_rng(0).choice([f"t{i}" for i in range(count)], len(rows), p=share)
    )


def _gangs(rows: pd.DataFrame, gpus: int) -> pd.DataFrame:
    """One job of a hundred takes 9 GPUs up to all of them, for as many GPU-hours."""
    random = np.random.default_rng(0)
    chosen = random.random(len(rows)) < 0.01
    wide = np.where(chosen, random.integers(9, gpus + 1, len(rows)), rows["gpus"])
    narrower = rows["gpus"] / wide
    times = ("duration_s", "user_limit_s")
    scaled = {name: np.maximum(rows[name] * narrower, 1.0) for name in times}
    return rows.assign(gpus=wide, **scaled)


def _merged(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([a, b]).sort_values("submit_s", kind="stable")


def _made_up(load: float, nodes: int, gpus: int, seed: int) -> pd.DataFrame:
    """Log-normal runtimes, arrivals by day and in bursts, one GPU in most jobs."""
    random = np.random.default_rng(seed)
    count = 4000
    duration = np.clip(random.lognormal(np.log(900), 2.2, count), 5, 20 * DAY_S)
    wide = random.choice([1, 2, 4, 8, 16], count, p=[0.78, 0.07, 0.09, 0.04, 0.02])
    wide = np.minimum(wide, nodes * gpus)
    gaps = random.exponential(1.0, count) * random.lognormal(0.0, 1.5, count)
    submit = np.cumsum(gaps)
    submit *= (duration * wide).sum() / (nodes * gpus * load) / submit[-1]
    submit += 5 * HOUR_S * np.sin(2 * np.pi * submit / DAY_S)
    limits = np.array([900, 3600, 14400, 86400, 604800, 60 * DAY_S])
    padded = duration * np.exp(random.exponential(1.0, count))
    return pd.DataFrame(
        {
            "job_id": [f"m{i}" for i in range(count)],
            "team": random.choice(["red", "blue", "green"], count, p=[0.5, 0.3, 0.2]),
            "submit_s": np.maximum(submit, 0.0),
            "duration_s": duration,
            "gpus": wide,
            "gpu_memory_bytes": random.choice([2, 4, 6, 10, 14, 20], count) * GIB,
            "gpu_util_frac": random.uniform(0.05, 1.0, count),
            "user_limit_s": limits[np.searchsorted(limits[:-1], padded)],
        }
    ).sort_values("submit_s")


def replayed(
    variant: Variant,
    who: tuple[PolicyName, Estimates, GpuSharing],
    settings: PolicySettings,
) -> Document:
    """The figures of one policy on *variant*."""
    policy, told, sharing = who
    rows = read_jobs(variant.rows.to_csv(index=False).encode(), variant.name, told, sharing)
    shape = Shape(variant.nodes, variant.gpus, 24 * GIB)
    result = simulate(rows, shape, policy, sharing, told, settings=settings)
    return document(result, policy, told, sharing, settings)


def _cells(ours: Document, rival: Document, targets: tuple[float, ...]) -> Iterator[str]:
    for name, most in zip(RATIOS, targets, strict=True):
        ratio = ours[name] / rival[name] if rival[name] else float("nan")
        yield f"{ratio:.2f}{'*' if ratio > most else ''}"


def main() -> None:
    """Print one line for each variant as it is done; * marks what misses its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--only", action="append", default=[], help="variants of this name")
    parser.add_argument("--set", dest="knobs", action="append", default=[], metavar="KNOB=VALUE")
    parser.add_argument("--conservative", action="store_true", help="conservative backfill too")
    given = parser.parse_args()
    pairs = (knob.split("=") for knob in given.knobs)
    knobs: dict[str, Any] = {name: float(value) for name, value in pairs}
    settings = replace(PolicySettings(), **knobs)
    types = {"job_id": str, "team": str}
    a, b = (pd.read_csv(path, dtype=types) for path in (given.a, given.b))
    rivals = [SLURM, ALIKE, *([CONSERVATIVE] if given.conservative else [])]
    names = [f"{' '.join(rival)}: mean | longest" for rival, _ in rivals]
    print(
        f"| variant | {' | '.join(names)} | wait h: EASY | ours | longest d: EASY | ours | kept |"
    )
    began = time.perf_counter()
    for variant in variants(a, b):
        if given.only and variant.name not in given.only:
            continue
        ours = replayed(variant, OURS, settings)
        theirs = [replayed(variant, rival, settings) for rival, _ in rivals]
        cells = [
            cell
            for rival, (_, targets) in zip(theirs, rivals, strict=True)
            for cell in _cells(ours, rival, targets)
        ]
        for name, unit_s in zip(RATIOS, (HOUR_S, DAY_S), strict=True):
            cells += [f"{each[name] / unit_s:.1f}" for each in (theirs[0], ours)]
        cells.append(f"{1 - ours['promises_broken'] / ours['promises']:.1%}")
        print(f"| {variant.name} | {' | '.join(cells)} |", flush=True)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
