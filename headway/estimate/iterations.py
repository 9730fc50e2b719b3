"""How many iterations or epochs a run will have, by those that runs of its recipe had.

They change with the options that say how much there is to do (`by_options`). How wide the range is
follows from how such predictions came out: each run of the past is predicted from those before it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from statistics import NormalDist

from headway.estimate.features import Configuration, from_trace
from headway.estimate.options import Count, by_options, may_change_count
from headway.estimate.spread import Z80, next_of
from headway.model.trace import AFTER, EPOCHS_DONE, Trace

_MOST_RUNS = 20
_WEIGHT = 3.0
"""What is expected of the range beforehand counts as so many predictions."""
_WIDEST = math.log(2.0)
"""Of half a range of 80 %, as a logarithm: a wider one says nothing."""
_ALIKE = ("recipe", "gpus", "nodes", "batch_size")
"""In what runs agree that have as many iterations; as many epochs have those of a recipe."""
_AFTER_SD, _LEAST_AFTER_S = 0.5, 0.1
"""Of the logarithm of how long runs go on when their count is over, before any is seen."""


def count_of(
    wanted: Configuration, recent: Sequence[Trace], count: Count = "iterations"
) -> NormalDist | None:
    """The law of the logarithm of a run's iterations or epochs; None where past runs tell it not.

    Args:
        wanted: The run.
        recent: Newest traces of its recipe, in any order.
        count: Which of the two.
    """
    work, seen = _work(wanted), []
    for trace in sorted(
        recent, key=lambda each: each.started_at.timestamp() if each.started_at else 0.0
    ):
        other = from_trace(trace)
        had = trace.iterations if count == "iterations" else trace.metrics.get(EPOCHS_DONE)
        if (
            trace.exit == "ok"
            and had
            and _is_alike(other, wanted, count)
            and _named(work, count) == _named(_work(other), count)
        ):
            seen.append((_work(other), math.log(had)))
    seen = seen[-_MOST_RUNS:]
    if not seen:
        return None
    said = by_options(work, seen, count=count)
    missed = 0.0
    for at in range(1, len(seen)):
        before = by_options(seen[at][0], seen[:at], count=count)
        missed += ((seen[at][1] - before.log_value) / before.sd) ** 2
    # The mean of a variance whose prior is inverse chi-squared (Gelman and others, Bayesian Data
    # Analysis, 2013, §2.6): wider than its mode where little is known.
    sd = said.sd * math.sqrt((_WEIGHT + missed) / (_WEIGHT + len(seen) - 3))
    return NormalDist(said.log_value, sd) if Z80 * sd <= _WIDEST else None


def after_count_of(wanted: Configuration, recent: Sequence[Trace]) -> NormalDist | None:
    """The law of the logarithm of the seconds that a run goes on when its first total is reached.

    None where no past run of *recent* tells it.
    """
    logs = [
        math.log(max(trace.metrics[AFTER], _LEAST_AFTER_S))
        for trace in recent
        if trace.exit == "ok" and AFTER in trace.metrics and _is_alike(from_trace(trace), wanted)
    ]
    return NormalDist(*next_of(logs, _AFTER_SD)) if logs else None


def newest_alike(
    wanted: Configuration, newest: Sequence[Trace], most: int
) -> Iterator[tuple[str, int]]:
    """The runs of this site, each with its attempt, that tell best how *wanted* will go.

    Of *newest*, newest first, those that ended well with as many GPUs and nodes and the same batch
    size, *most* of them.
    """
    alike = (
        trace.run_id.rpartition("-")
        for trace in newest
        if trace.run_id and trace.source == "site" and trace.exit == "ok"
        if _is_alike(from_trace(trace), wanted)
    )
    known = ((run_id, int(attempt)) for run_id, _, attempt in alike if attempt.isdecimal())
    return islice(known, most)


def _is_alike(one: Configuration, other: Configuration, count: Count = "iterations") -> bool:
    names = _ALIKE if count == "iterations" else ("recipe",)
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _work(of: Configuration) -> Mapping[str, float]:
    """What may change how many iterations it has."""
    own = {"--epochs": of.epochs, "--samples": of.dataset_samples or of.dataset_bytes}
    return {name: float(value) for name, value in own.items() if value} | dict(of.settings)


def _named(work: Mapping[str, float], count: Count) -> set[str]:
    return {name for name in work if may_change_count(name, count)}
