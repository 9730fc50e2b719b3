"""Draws replays of a trace: how long jobs waited, and how many did.

PYTHONPATH=. python benchmarks/replay_chart.py TRACE.csv NODES GPUS OUTPUT.png
"""

import argparse
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headway.policy.settings import PolicySettings
from headway.replay.cluster import Shape
from headway.replay.simulate import PolicyName, Result, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing, read_jobs
from headway.units import DAY_S, GIB, MINUTE_S


def waits(results: Mapping[str, Result]) -> bytes:
    """PNG with the share of jobs within each wait, and the length of the queue over time.

    Args:
        results: By the name that the legend shows.
    """
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    within, length = figure.subplots(1, 2)
    for name, result in results.items():
        submit = np.array([job.trace.submit_s for job in result.jobs])
        start = np.sort([job.start_s for job in result.jobs])
        wait = np.sort([job.start_s - job.trace.submit_s for job in result.jobs])
        share = np.arange(1, len(wait) + 1) / len(wait)
        within.step(np.maximum(wait, 1.0) / MINUTE_S, share, where="post", label=name)
        times = np.linspace(0.0, float(start[-1]), 1000)
        waiting = np.searchsorted(submit, times, "right") - np.searchsorted(start, times, "right")
        length.plot(times / DAY_S, waiting, label=name)
    within.set(xscale="log", xlabel="Wait, min", ylabel="Share of jobs within it", ylim=(0, 1))
    length.set(xlabel="Day", ylabel="Jobs in the queue", ylim=(0, None))
    for axes in (within, length):
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def main() -> None:
    """Replay under each policy, as the command does by default, and draw it."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("trace", type=Path)
    ask.add_argument("nodes", type=int)
    ask.add_argument("gpus", type=int, help="on each node, of 24 GiB")
    ask.add_argument("output", type=Path)
    asked = ask.parse_args()
    results = {}
    for policy in PolicyName:
        ours = policy is PolicyName.HEADWAY
        told = Estimates.LEARNED if ours else Estimates.USER
        sharing = GpuSharing.HEADWAY if ours else GpuSharing.WHOLE
        rows = read_jobs(asked.trace.read_bytes(), asked.trace.name, told, sharing)
        shape = Shape(asked.nodes, asked.gpus, 24 * GIB)
        results[f"{policy} ({told}, {sharing})"] = simulate(
            rows, shape, policy, sharing, told, settings=PolicySettings()
        )
    asked.output.write_bytes(waits(results))


if __name__ == "__main__":
    main()
