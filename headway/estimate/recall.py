"""What the newest runs of a recipe say, before the nightly refit has learnt from them.

The same job again takes as long as it did; a larger one of the same recipe
takes longer in proportion to its work; one with other options, such as the next
member of an array, about as long. Below that lies the prior: a wide interval for
what nobody has run yet. Cheap to import.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from headway.estimate.features import Configuration, Unit, from_trace, measured_times
from headway.estimate.options import EPOCHS, by_options, last_part, may_change_memory, named
from headway.estimate.prior import OVER_BOUND, UTILISATION_PRIOR
from headway.estimate.scaling import Point, scaled
from headway.estimate.spread import Z80, next_of
from headway.model.run import Prediction
from headway.model.trace import EPOCHS_DONE, LONGEST_S, UTILISATION, Trace
from headway.units import DAY_S, HOUR_S, MINUTE_S

RECENT = 50
"""So many of the newest traces of a recipe are looked at."""
_REPEAT_SD = 0.2
"""Standard deviation of log runtime between runs of one job, before any is seen."""
_SD_PER_LOG_WORK = 0.5
"""Extra spread where the work differs: by e-fold, half an e-fold."""
_NEWEST = 7
"""Of more runs the newest so many tell the time: an update of a library makes all of them slower,
of which four runs then tell. How far apart they lie is told by all."""
_SAME_AMOUNT = 0.1
"""Runs whose log of work differs by no more are of the same job: data that grow by the day."""
_UTILISATION_WEIGHT = 1.0
"""The prior of a job's utilisation counts as so many traces."""
_IMPLAUSIBLE = 10
"""A memory peak of more than so many times the median of the same job is a wrong measurement, such
as one imported in another unit. Where it is true, the run is killed for memory and gets more."""
_LEAST_UTILISATION = 0.05
"""Of any job: twenty on one GPU is where it ends, however idle they were."""
_ALIKE = ("recipe", "gpu_type", "gpus", "nodes", "batch_size", "cpus")
"""In what runs agree that differ in their amount of work and their settings alone."""
_SAME_WORK = ("recipe", "gpu_type", "batch_size", "precision", "settings")
"""In what runs agree that differ in the number of their GPUs and the amount of work alone."""
_SAME_MEMORY = ("recipe", "batch_size")
"""In what runs agree that take the same of a GPU."""
_KNOWN_SCALING = 2
"""Runs on so many numbers of GPUs show what links cost."""
_FEW = 10
"""So many runs of a recipe, each with other options, say more than what was learnt from all."""
_OTHER_SETTINGS_MEMORY = 1.5
"""So many times the memory of runs with other options is asked for."""
_NEEDS = (
    "host_peak_bytes",
    "gpu_peak_bytes",
    "gpu_utilisation_frac",
    "host_above_bytes",
    "gpu_above_bytes",
    "gpu_held_bytes",
)
_PRIOR_RUNTIME_S = (2 * MINUTE_S, HOUR_S, DAY_S)
"""Low, median and high of a job of which nothing is known: four of five jobs of public cluster
traces lie between."""
_PRIOR_OF_LIMIT = (0.02, 0.25, 1.0)
"""The same as shares of the time limit: people ask for several times what they use."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One finished run of the recipe, scaled to the work of the new one."""

    log_runtime: float
    log_work: float
    """Log of how much more work the new run is; 0 when the same."""
    same_settings: bool
    """Whether its command had the same numbers as options."""
    trace: Trace


def said_of(
    configuration: Configuration,
    learnt: Prediction,
    recent: Sequence[Trace],
    *,
    limit_s: float | None = None,
    is_session: bool = False,
) -> Prediction:
    """What is said of a run: by repeats, else what was *learnt*, else its recipe, else the prior.

    Runs of the recipe on two other numbers of GPUs at least say more of this number than what was
    learnt, which does not know them yet.

    Args:
        configuration: The run; its GPU type as traces name it.
        learnt: What the estimators say; None in it where they know nothing.
        recent: Newest traces of its recipe; those that tell no start, the newest first.
        limit_s: Its time limit, if it has one.
        is_session: It lasts as long as somebody uses it, of which no other run tells.

    Returns:
        A prediction that always has a runtime and an interval; memory only
        where something is known of it.
    """
    of_recipe = _seen(configuration, recent)
    seen = [each for each in of_recipe if each.same_settings]
    repeats = [each for each in seen if abs(each.log_work) <= _SAME_AMOUNT]
    points = _on_other_gpus(configuration, recent)
    if is_session:
        found = _prior(limit_s, "a session lasts as long as it is used")
    elif repeats:
        found = _of(repeats, f"{len(repeats)} run(s) of the same job")
    elif 0 < len(of_recipe) <= _FEW and not seen:  # what was learnt does not know them yet
        found = _of_others(configuration, of_recipe)
    elif learnt.runtime_s is not None and len(points) < _KNOWN_SCALING:
        found = learnt
    elif seen:
        found = _of(seen, f"{len(seen)} run(s) of the recipe, scaled by their work")
    elif points:
        found = _of_other_gpus(configuration, points)
    elif of_recipe:
        found = _of_others(configuration, of_recipe)
    else:
        found = _prior(limit_s)
    above = _above(configuration, recent)

    def peak(name: str, above_bytes: int | None) -> int | None:
        # A fitted upper quantile of memory knows more than repeats, but none that was measured.
        most = _most([held for each in repeats if (held := getattr(each.trace, name))])
        upper: int | None = getattr(learnt, name)
        upper = max(upper, most) if upper is not None else getattr(found, name)
        if upper is None or above_bytes is None:
            return upper
        return max(upper, math.ceil(above_bytes * OVER_BOUND))

    runtimes = ("runtime_s", "runtime_low_s", "runtime_high_s")
    return replace(
        found,
        # Next to a run of one epoch one of a million would last beyond the end of all dates.
        **{name: min(s, LONGEST_S) for name in runtimes if (s := getattr(found, name)) is not None},
        host_peak_bytes=peak("host_peak_bytes", above[0]),
        gpu_peak_bytes=peak("gpu_peak_bytes", above[1]),
        gpu_utilisation_frac=_utilisation(configuration, recent),
        host_above_bytes=above[0],
        gpu_above_bytes=above[1],
        gpu_held_bytes=_held(configuration, recent),
    )


def of_any(said: Sequence[Prediction]) -> Prediction:
    """What is said of a run that may get any of several GPU types, before it is known which.

    Its time is that on the slowest of those of which something is known; what
    it needs is the most that is known of any.
    """
    known = [each for each in said if each.learnt_runtime_s is not None] or said
    slowest = max(known, key=lambda each: each.runtime_high_s or 0.0)

    def most(name: str) -> Any:
        return max((v for each in said if (v := getattr(each, name)) is not None), default=None)

    return replace(slowest, **{name: most(name) for name in _NEEDS})


def _above(configuration: Configuration, recent: Sequence[Trace]) -> tuple[int | None, int | None]:
    """The most host and GPU memory that was not enough for the same job, or for a smaller one.

    Only runs that asked for no more work of memory: the same settings and batch
    size, and no larger data set.
    """
    host, gpu = [], []
    for trace in recent:
        other = from_trace(trace)
        same = _same_memory(configuration, other)
        smaller = (other.dataset_bytes or 0) <= (configuration.dataset_bytes or 0)
        if trace.exit == "oom" and same and smaller:
            host.append(trace.host_peak_bytes or 0)
            gpu.append(trace.gpu_peak_bytes or 0)
    return max(host, default=0) or None, max(gpu, default=0) or None


def _held(configuration: Configuration, recent: Sequence[Trace]) -> int | None:
    """The most GPU memory that runs of the same job held which were cut short on this site."""
    held = [
        trace.gpu_peak_bytes or 0
        for trace in recent
        if (trace.exit, trace.source) == ("failed", "site")
        and _same_memory(configuration, from_trace(trace))
    ]
    return max(held, default=0) or None


def _same_memory(one: Configuration, other: Configuration) -> bool:
    """Whether both take the same of a GPU: one recipe, one batch size, one set of options."""
    same = all(getattr(one, name) == getattr(other, name) for name in _SAME_MEMORY)
    return same and _same_settings(one.settings, other.settings)


def _on_other_gpus(
    configuration: Configuration, recent: Sequence[Trace]
) -> Mapping[tuple[int, int], Sequence[float]]:
    """What the same work took on other numbers of GPUs of the same type, by GPUs and nodes.

    Without GPUs on other numbers of nodes, of which each counts as one, with as many CPUs.
    """
    found: dict[tuple[int, int], list[float]] = {}
    for trace in recent:
        other = from_trace(trace)
        alike = all(getattr(other, name) == getattr(configuration, name) for name in _SAME_WORK)
        if other.gpu_type == "cpu":
            alike = (
                alike and other.nodes != configuration.nodes and other.cpus == configuration.cpus
            )
        seconds = _whole_s(configuration, other, trace)
        if trace.exit == "ok" and alike and seconds:
            found.setdefault((_devices(other), other.nodes), []).append(seconds)
    return found


def _devices(configuration: Configuration) -> int:
    """GPUs in all; of CPU nodes each is one."""
    return configuration.nodes if configuration.gpu_type == "cpu" else configuration.gpus


def _whole_s(wanted: Configuration, other: Configuration, trace: Trace) -> float | None:
    """What the work of *wanted* took on the GPUs of *trace*; None where that cannot be told."""
    if trace.runtime_s:
        return trace.runtime_s * math.exp(_log_work(wanted, other))
    times = measured_times(trace)
    if Unit.EPOCH in times and wanted.epochs:
        return times[Unit.EPOCH] * wanted.epochs
    iterations = replace(wanted, gpus=other.gpus).iterations_in_all()
    return times[Unit.ITERATION] * iterations if Unit.ITERATION in times and iterations else None


def _of_other_gpus(
    configuration: Configuration, seen: Mapping[tuple[int, int], Sequence[float]]
) -> Prediction:
    wanted = _devices(configuration)
    points = [Point(gpus, nodes, median(each)) for (gpus, nodes), each in seen.items()]
    said = scaled(points, wanted, configuration.nodes)
    # A run differs from the next one by as much as one on the very same GPUs does.
    near = min(seen, key=lambda at: abs(math.log(at[0] / wanted)))
    _, sd = next_of([math.log(each) for each in seen[near]], _REPEAT_SD)
    half = math.hypot(math.log(said.high_s / said.seconds), Z80 * sd)
    counts = ", ".join(str(each) for each in sorted({point.gpus for point in points}))
    kind = "node(s) without GPUs" if configuration.gpu_type == "cpu" else "GPU(s)"
    return Prediction(
        runtime_s=said.seconds,
        runtime_low_s=said.seconds * math.exp(-half),
        runtime_high_s=said.seconds * math.exp(half),
        basis=f"runs of the recipe on {counts} {kind}, scaled",
    )


def _utilisation(configuration: Configuration, recent: Sequence[Trace]) -> float | None:
    """Mean of the runs of the recipe on such a GPU, those at the same batch size if there are any.

    A mean, not a bound: jobs that together ask for more than all of a GPU
    wait for each other now and then, and nobody is killed.
    """
    measured = []
    for trace in recent:
        other, busy = from_trace(trace), trace.metrics.get(UTILISATION)
        of_it = (other.recipe, other.gpu_type) == (configuration.recipe, configuration.gpu_type)
        if of_it and busy is not None and trace.exit == "ok":
            measured.append((other.batch_size == configuration.batch_size, busy))
    same = [busy for alike, busy in measured if alike] or [busy for _, busy in measured]
    if not same:
        return None
    total = _UTILISATION_WEIGHT * UTILISATION_PRIOR + sum(same)
    return min(max(total / (_UTILISATION_WEIGHT + len(same)), _LEAST_UTILISATION), 1.0)


def _seen(configuration: Configuration, recent: Sequence[Trace]) -> list[_Seen]:
    found = []
    for trace in recent:
        other = from_trace(trace)
        alike = all(getattr(other, name) == getattr(configuration, name) for name in _ALIKE)
        if trace.exit == "ok" and trace.runtime_s and alike:
            log_work = _log_work(configuration, other)
            same = _same_settings(configuration.settings, other.settings)
            found.append(_Seen(math.log(trace.runtime_s) + log_work, log_work, same, trace))
    return found


def _same_settings(asked: Mapping[str, float], seen: Mapping[str, float]) -> bool:
    """Whether a run had what is *asked*; of earlier versions it has no numbers that stand alone."""
    return seen == (asked if seen != named(seen) else named(asked))


def _log_work(wanted: Configuration, other: Configuration) -> float:
    """Log of how much more work *wanted* is, by epochs and by samples, else by bytes."""
    ratio = 1.0
    if wanted.epochs and other.epochs:
        ratio *= wanted.epochs / other.epochs
    if wanted.dataset_samples and other.dataset_samples:
        ratio *= wanted.dataset_samples / other.dataset_samples
    elif wanted.dataset_bytes and other.dataset_bytes:
        ratio *= wanted.dataset_bytes / other.dataset_bytes
    return math.log(ratio)


def _of(seen: Sequence[_Seen], basis: str) -> Prediction:
    _, sd = next_of([each.log_runtime for each in seen], _REPEAT_SD)
    newest = sorted(seen, key=lambda each: str(each.trace.started_at or ""), reverse=True)
    centre = median(each.log_runtime for each in newest[:_NEWEST])
    half = Z80 * (sd + _SD_PER_LOG_WORK * min(abs(each.log_work) for each in seen))
    same = [each.trace for each in seen if each.log_work == 0.0]
    return Prediction(
        runtime_s=math.exp(centre),
        runtime_low_s=math.exp(centre - half),
        runtime_high_s=math.exp(centre + half),
        host_peak_bytes=_upper([t.host_peak_bytes for t in same if t.host_peak_bytes]),
        gpu_peak_bytes=_upper([t.gpu_peak_bytes for t in same if t.gpu_peak_bytes]),
        basis=basis,
    )


def _of_others(configuration: Configuration, seen: Sequence[_Seen]) -> Prediction:
    """What runs with other options say: by those that matter, and with more memory."""
    wanted = configuration.settings
    counted = EPOCHS if configuration.epochs else ()
    told = [(_with_epochs(wanted, each.trace), each.log_runtime) for each in seen]
    said = by_options(wanted, told, counted)
    half = said.half + Z80 * _SD_PER_LOG_WORK * min(abs(each.log_work) for each in seen)
    same = [
        t for t, (of_it, _) in zip(seen, told, strict=True) if not may_change_memory(wanted, of_it)
    ]
    traces = [each.trace for each in same or seen]
    more = 1.0 if same else _OTHER_SETTINGS_MEMORY
    host = _upper([each.host_peak_bytes for each in traces if each.host_peak_bytes])
    gpu = _upper([each.gpu_peak_bytes for each in traces if each.gpu_peak_bytes])
    words = f": {said.words}" if said.words else ""
    return Prediction(
        runtime_s=math.exp(said.log_value),
        runtime_low_s=math.exp(said.log_value - half),
        runtime_high_s=math.exp(said.log_value + half),
        host_peak_bytes=host and math.ceil(more * host),
        gpu_peak_bytes=gpu and math.ceil(more * gpu),
        basis=f"{len(seen)} run(s) of the recipe with other options{words}",
    )


def _with_epochs(wanted: Mapping[str, float], trace: Trace) -> Mapping[str, float]:
    """The options of a run; where none says its epochs, as one of *wanted* does, those it had."""
    settings, done = from_trace(trace).settings, trace.metrics.get(EPOCHS_DONE)
    asked, own = (
        [name for name in each if last_part(name.lstrip("-")) in EPOCHS]
        for each in (wanted, settings)
    )
    return {**settings, **dict.fromkeys(asked, done)} if done and not own else settings


def _upper(peaks: Sequence[int]) -> int | None:
    """A bound for the next peak: the largest plausible one, and less on top the more there are."""
    return math.ceil(_most(peaks) * (1 + 0.25 / math.sqrt(len(peaks)))) if peaks else None


def _most(peaks: Sequence[int]) -> int:
    """The largest plausible one of them; 0 of none."""
    least_implausible = _IMPLAUSIBLE * median(peaks) if peaks else 0
    return max((each for each in peaks if each <= least_implausible), default=0)


def _prior(limit_s: float | None, why: str = "nothing like it has run") -> Prediction:
    low_s, median_s, high_s = _PRIOR_RUNTIME_S
    basis = f"prior: {why}"
    if limit_s is not None:
        low_s, median_s, high_s = (limit_s * share for share in _PRIOR_OF_LIMIT)
        basis = f"prior: its time limit; {why}"
    return Prediction(runtime_s=median_s, runtime_low_s=low_s, runtime_high_s=high_s, basis=basis)
