"""Which measured times are learnt from: none that nothing can take, and no one's alone.

An iteration's time often follows from counts that the job or its log claims. Where it is less than
the GPU needs, or than anything that others run by far, the claim is not believed.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from headway.estimate.features import Configuration, Unit, measured_times
from headway.model.trace import Trace

LEAST_ITERATION_S = 1e-5
"""To start a kernel takes as long."""
BESIDE_OTHERS = 1e4
"""A claimed time so many times shorter than nine in ten of other people's is not believed."""
REPEATS = 10
"""So many of one person's runs of the very same job are learnt from."""
OF_ONE = 500
"""So many of one person's runs, or as many as all others have, where there are others."""
_ENOUGH = 5
"""Fewer runs of others say nothing of what is possible."""


def learnable(
    traces: Sequence[Trace], known: Sequence[Configuration], unit: Unit
) -> dict[int, float]:
    """By position the seconds of a *unit* of those *traces* to learn from, in their order.

    Args:
        traces: What there is.
        known: The same as complete configurations.
        unit: What one time is the time of.
    """
    rows = {
        at: seconds
        for at, trace in enumerate(traces)
        if (seconds := measured_times(trace).get(unit)) is not None
    }
    if unit is Unit.ITERATION:
        rows = _believed(rows, traces, known)
    newest = sorted(rows, key=lambda at: str(traces[at].started_at or ""), reverse=True)
    people = Counter(whose_run(traces[at]) for at in rows)
    repeats, kept = Counter[tuple[str, str]](), Counter[str]()
    chosen = set()
    for at in newest:
        whose = whose_run(traces[at])
        job = (whose, repr(known[at]))
        others = len(rows) - people[whose]
        most = max(OF_ONE, others) if others else len(rows)
        if not whose or (repeats[job] < REPEATS and kept[whose] < most):
            chosen.add(at)
            repeats[job] += 1
            kept[whose] += 1
    return {at: seconds for at, seconds in rows.items() if at in chosen}


def whose_run(trace: Trace) -> str:
    """The person, as far as that is known; empty for what was imported by an operator."""
    return " of ".join(filter(None, (trace.owner, trace.team)))


def _believed(
    rows: dict[int, float], traces: Sequence[Trace], known: Sequence[Configuration]
) -> dict[int, float]:
    """*rows* without claims that cannot be true."""
    seconds = np.array(list(rows.values()))
    whose = np.array([whose_run(traces[at]) for at in rows])
    floors = {
        each: float(np.quantile(seconds[whose != each], 0.1)) / BESIDE_OTHERS
        for each in set(whose)
        if (whose != each).sum() >= _ENOUGH
    }
    return {
        at: took_s
        for at, took_s in rows.items()
        if traces[at].iteration_s
        or took_s >= max(_least_s(known[at]), floors.get(whose_run(traces[at]), 0.0))
    }


def _least_s(known: Configuration) -> float:
    """What the forward pass of a batch takes of the GPU at its peak, where that can be told."""
    if not (known.flops and known.batch_size and known.gpu_flops_per_s):
        return LEAST_ITERATION_S
    return max(LEAST_ITERATION_S, known.flops * known.batch_size / known.gpu_flops_per_s)
