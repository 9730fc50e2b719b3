"""Whether measured times on several GPUs can be true: no n of them do n times as much and more."""

from collections.abc import Sequence
from dataclasses import replace

from headway.model.trace import Trace

TOLERANCE = 1.25
"""A speed-up of so many times the GPUs is still believed: caches, and measuring, differ."""
_SAME = (
    *("network", "gpu_type", "batch_size", "precision", "framework", "data_threads"),
    *("dataset_bytes", "dataset_samples", "epochs", "recipe", "team", "source"),
)
"""In what rows agree that differ in the number of their GPUs."""


def speed_ups(traces: Sequence[Trace]) -> dict[int, tuple[float, float]]:
    """By position the speed-up of each row that another one can be compared with, and its GPUs.

    Both against the fastest row of the same work on the fewest GPUs, so 1 and more GPUs.
    """
    groups: dict[tuple[object, ...], dict[int, float]] = {}
    for at, trace in enumerate(traces):
        column, seconds = _same_work_s(trace)
        if trace.exit == "ok" and trace.gpus and seconds:
            options = sorted((k, v) for k, v in trace.metrics.items() if k.startswith("--"))
            key = (column, *options, *(getattr(trace, name) for name in _SAME))
            groups.setdefault(key, {})[at] = seconds
    found: dict[int, tuple[float, float]] = {}
    for rows in groups.values():
        fewest = min(traces[at].gpus for at in rows)
        alone_s = min(seconds for at, seconds in rows.items() if traces[at].gpus == fewest)
        found |= {
            at: (alone_s / seconds, traces[at].gpus / fewest)
            for at, seconds in rows.items()
            if traces[at].gpus > fewest
        }
    return found


def impossible(traces: Sequence[Trace]) -> dict[int, str]:
    """By position the rows whose speed-up is above the number of GPUs, and what is wrong."""
    return {
        at: f"{faster:.1f} times the speed on {gpus:g} times the GPUs"
        for at, (faster, gpus) in speed_ups(traces).items()
        if faster > gpus * TOLERANCE
    }


def of_all_gpus(traces: Sequence[Trace]) -> list[Trace]:
    """*traces* whose `iteration_s` was the time of one batch over all GPUs together."""
    return [
        t if t.iteration_s is None else replace(t, iteration_s=t.iteration_s * max(t.gpus, 1))
        for t in traces
    ]


def _same_work_s(trace: Trace) -> tuple[str, float | None]:
    """The column that tells the time, and seconds in which the same work is done on any GPUs."""
    if trace.iteration_s:  # each GPU takes a batch in it
        return "iteration_s", trace.iteration_s / max(trace.gpus, 1)
    if trace.samples_per_s:
        return "samples_per_s", 1.0 / trace.samples_per_s
    return ("epoch_s", trace.epoch_s) if trace.epoch_s else ("runtime_s", trace.runtime_s)
