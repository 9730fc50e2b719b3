"""How much runs slow each other down that share a GPU, measured by their progress."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from headway.model.progress import ProgressPoint

_EDGE_S = 5.0
"""A run may be there so much sooner and longer than is written down."""
_FEWEST_SPANS = 5
_LEAST_S = 60.0
"""Of so many spans between reports, and so long, alone and beside another, a speed is told."""
_LEAST, _MOST = 0.5, 100.0
"""No neighbour makes a run twice as fast or a hundred times as slow: then its counts are wrong."""
_STEADY = 1.25
"""A run whose speeds alone before and after differ by more has changed by itself."""


class Presence(NamedTuple):
    """When another run was on a GPU of a run, in seconds since that one's container started."""

    run_id: str
    came_s: float
    """Nothing of it was there before."""
    began_s: float
    """Its program ran from here on; infinite where it never did."""
    ended_s: float
    """Its program has ended; infinite while it goes on."""
    left_s: float
    """All of it is gone; infinite while it is not."""


class _Span(NamedTuple):
    """What was done between two reports."""

    began_s: float
    ended_s: float
    done: float

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s


def slow_downs(points: Sequence[ProgressPoint], others: Sequence[Presence]) -> dict[str, float]:
    """How many times as long a step of a run took beside each of *others* as alone, by run.

    By medians of what was done between reports, so that start-up, evaluations and checkpoints
    count for little. Spans in which another one came or went, or in which two were there, say
    nothing. Nothing of those of which too little was seen, or where it was alone for too short.

    Args:
        points: What the run's log has reported, in order.
        others: Who was on its GPUs; one run may have been there several times.
    """
    alone: list[_Span] = []
    beside: dict[str, list[_Span]] = {}
    for span in _spans(points):
        there = {
            each.run_id
            for each in others
            if each.came_s - _EDGE_S < span.ended_s and span.began_s < each.left_s + _EDGE_S
        }
        all_along = {
            each.run_id
            for each in others
            if each.began_s + _EDGE_S <= span.began_s and span.ended_s <= each.ended_s - _EDGE_S
        }
        if not there:
            alone.append(span)
        elif len(there) == 1 and there == all_along:
            beside.setdefault(there.pop(), []).append(span)
    found = {}
    for run_id, spans in beside.items():
        first_s, last_s = spans[0].began_s, spans[-1].ended_s
        before = [span for span in alone if span.ended_s <= first_s]
        after = [span for span in alone if span.began_s >= last_s]
        slow_s, alone_s = _usual_s(spans), _usual_s(alone)
        ends = [usual_s for each in (before, after) if (usual_s := _usual_s(each)) is not None]
        steady = max(ends, default=1.0) <= _STEADY * min(ends, default=1.0)
        if slow_s and alone_s and steady and _LEAST <= slow_s / alone_s <= _MOST:
            found[run_id] = slow_s / alone_s
    return found


def _spans(points: Sequence[ProgressPoint]) -> Iterable[_Span]:
    """By iterations or by epochs: whichever more reports have."""
    iterations = [(p.t_s, float(p.iteration)) for p in points if p.iteration is not None]
    epochs = [(p.t_s, float(p.epoch)) for p in points if p.epoch is not None]
    counts = iterations if len(iterations) >= len(epochs) else epochs
    for (began_s, one), (ended_s, other) in pairwise(counts):
        if other > one and ended_s > began_s:
            yield _Span(began_s, ended_s, other - one)


def _usual_s(spans: Sequence[_Span]) -> float | None:
    """Seconds of a step: the median over all that was done; None where that is too little."""
    if len(spans) < _FEWEST_SPANS or sum(span.took_s for span in spans) < _LEAST_S:
        return None
    half = sum(span.done for span in spans) / 2
    for span in sorted(spans, key=lambda each: each.took_s / each.done):
        half -= span.done
        if half <= 0:
            return span.took_s / span.done
    return None


class Program(NamedTuple):
    """What a run runs, as far as pairs are told apart."""

    network: str
    batch_size: int | None = None
    team: str = ""
    """Whose runs tell of it."""


def program_of(job: Mapping[str, Any], team: str) -> Program:
    """What a run of *team* runs, by the document of its *job*.

    As traces name it: see `TrainingJob.recipe`.
    """
    training = job.get("training")
    training = training if isinstance(training, Mapping) else {}
    name, batch = training.get("network"), training.get("batch_size")
    network = str(name or f"{job.get('image', '')}:{job.get('name', '')}").lower()
    return Program(network, batch if isinstance(batch, int) else None, team)
