"""Where and how large to run a job: what each way takes, costs and needs, and which to choose."""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.estimate.features import from_job
from headway.estimate.framework_memory import host_guess
from headway.estimate.gpu_prior import gpu_memory_guess
from headway.estimate.prior import demand_for
from headway.estimate.recall import said_of
from headway.estimate.shares import Shares, shares_of
from headway.estimate.usual import Found, instead_of_prior
from headway.model.job import TrainingJob
from headway.model.lease import Basis, Demand, Sharing
from headway.model.node import Gpu, Node, NodeSpace, NodeState, is_of_type
from headway.model.node_settings import NodeSettings
from headway.model.run import Prediction
from headway.model.size import Size
from headway.model.trace import Trace
from headway.units import HOUR_S, format_duration

if TYPE_CHECKING:
    from headway.estimate.estimator import Estimators


class Prefer(enum.StrEnum):
    """What the choice is to be best in, among all that keep to budget and deadline."""

    FASTEST = "fastest"
    CHEAPEST = "cheapest"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a job."""

    gpu_type: str
    """``cpu`` when no GPU is used."""
    nodes: tuple[str, ...]
    """Names of the nodes that could take it; of each, `node_count` are needed."""
    node_count: int
    gpus: int
    """In all, over all nodes."""
    prediction: Prediction
    host_memory_bytes: int
    """To reserve on each node."""
    gpu_memory_bytes: int
    """To reserve on each GPU; at least so much has one that is given whole."""
    gpu_memory_interval_bytes: tuple[int, int] | None
    """What it holds lies in it four times of five; None where it is no guess by its network."""
    price_per_hour: float
    whole: bool = False
    """Each GPU alone, because that is asked for or because nothing is known of what it needs."""
    wait_s: float | None = None
    """Expected until it could start; None when nothing can be said."""
    speed_up: float | None = None
    """Runtime on one such GPU over that on these; None where either is not known."""
    shares: Shares | None = None
    """What each GPU does of the work; None for one, and where batch or epochs are not known."""
    pareto: bool = False
    """No other option is both as fast and as cheap."""
    excess: float = 0.0
    """How many times its cost or its time, by the upper end of the interval, is what it may be:
    the larger of both, 0 where neither is limited. Infinite where that cannot be told, or the job
    does not allow its size."""
    chosen: bool = False

    @property
    def within(self) -> bool:
        """Keeps to budget, deadline, and the range of sizes that the job may give."""
        return self.excess <= 1.0

    @property
    def efficiency_frac(self) -> float | None:
        """Share of what so many GPUs could do at best; above 1 where they fit what one does not."""
        return self.speed_up and self.speed_up / self.gpus

    @property
    def done_s(self) -> float | None:
        """Expected from now until the end, the wait included; None when not known."""
        runtime_s, wait_s = self.prediction.runtime_s, self.wait_s
        return None if runtime_s is None or wait_s is None else runtime_s + wait_s


def options(
    job: TrainingJob,
    spaces: Sequence[NodeSpace],
    estimators: "Estimators",
    *,
    recent: Sequence[Trace] = (),
    dataset_bytes: int | None = None,
    gangs: bool = True,
    budget: float | None = None,
    deadline_s: float | None = None,
    prefer: Prefer = Prefer.FASTEST,
    wait_s: Callable[[Option], float | None] = lambda _: 0.0,
    is_allowed: Callable[[Option], bool] = lambda _: True,
    usual: Found | None = None,
) -> list[Option]:
    """Every way to run *job* on *spaces*, the Pareto set and the choice marked.

    Args:
        job: What is asked; the number of GPUs it names is one of those tried,
            its GPU type a wish that all keep to.
        spaces: Nodes of the site; those that take nothing new are left out.
        estimators: What is known.
        recent: Newest traces of the job's recipe, which no refit has learnt from yet.
        dataset_bytes: Measured size of the data set; the declared one when None.
        gangs: Whether the site has a network on which jobs over several nodes meet.
        budget: Most that it may cost, in the site's currency.
        deadline_s: Seconds from now by which it must end.
        prefer: What the choice is best in.
        wait_s: Expected wait of an option.
        is_allowed: Whether who asks may ever hold so much.
        usual: How long other runs last, which is said of every way of which nothing is learnt:
            they tell no way from another.

    Returns:
        Options, the choice first, then by what is preferred; those last of which nobody can say
        when they would end. Empty when no node could hold the job, or who asks not have it.
    """
    nodes = [node for node, _ in spaces]
    products = {gpu.name for node in nodes for gpu in node.capacity.gpus}
    short = {product: estimators.tables.gpu_name(product) for product in products}
    ways = [way for way in _ways(job, nodes, short) if gangs or way.node_count == 1]
    configurations = [
        from_job(
            job, gpu_type=w.gpu_type, gpus=w.gpus, nodes=w.node_count, dataset_bytes=dataset_bytes
        )
        for w in ways
    ]
    learnt = estimators.predict(configurations)
    named = [replace(t, gpu_type=estimators.tables.gpu_name(t.gpu_type)) for t in recent]
    predictions = []
    for c, each in zip(configurations, learnt, strict=True):
        said = said_of(c, each, named, limit_s=job.max_runtime)
        if said.learnt is None:
            said = instead_of_prior(said, usual)
        predictions.append(said)
    alone_s = {
        way.gpu_type: said.runtime_s
        for way, said in zip(ways, predictions, strict=True)
        if way.gpus == 1 and said.learnt_runtime_s is not None
    }
    predictions = [
        _priced(_possible(said, alone_s.get(way.gpu_type), way.gpus), way.price_per_hour)
        for way, said in zip(ways, predictions, strict=True)
    ]
    found = []
    for way, asked, prediction in zip(ways, configurations, predictions, strict=True):
        there = [each for each in spaces if each.node.name in way.nodes]
        guess = gpu_memory_guess(asked, estimators.tables)
        demand = demand_for(
            job,
            prediction,
            dataset_bytes,
            host_guess=host_guess(job, way.gpus // way.node_count, there),
            gpu_guess_bytes=guess and guess.upper_bytes,
        )
        demand = _within(demand, way, there, job, short)
        option = replace(
            way,
            prediction=prediction,
            host_memory_bytes=demand.host_memory_bytes,
            gpu_memory_bytes=demand.gpu_memory_bytes if way.gpus else 0,
            gpu_memory_interval_bytes=guess[1:3]
            if guess
            and demand.gpu_memory_basis is Basis.PRIOR
            and prediction.gpu_held_bytes is None
            else None,
            whole=bool(way.gpus) and demand.sharing is Sharing.WHOLE,
            wait_s=wait_s(way),
            speed_up=_speed_up(alone_s.get(way.gpu_type), prediction),
            shares=shares_of(job.training, way.gpus),
        )
        owners = [n for n in nodes if n.name in way.nodes]
        fitting = tuple(n.name for n in owners if _holds(n, option, job, short))
        if len(fitting) >= way.node_count and is_allowed(option):
            excess = _excess(option, budget, deadline_s) if _is_asked(option, job) else math.inf
            found.append(replace(option, nodes=fitting, excess=excess))
    return _ranked(_with_pareto(found), prefer)


def _speed_up(alone_s: float | None, said: Prediction) -> float | None:
    """How many times as fast as one GPU; not told by what only the prior says."""
    runtime_s = said.learnt_runtime_s
    return alone_s / runtime_s if alone_s and runtime_s else None


def _possible(said: Prediction, alone_s: float | None, gpus: int) -> Prediction:
    """*said* with no time below what so many GPUs need of work that one does in *alone_s*."""
    runtime_s = said.learnt_runtime_s
    if alone_s is None or runtime_s is None or runtime_s * gpus >= alone_s:
        return said
    most_s = max(alone_s / gpus, said.runtime_high_s or 0.0)
    return replace(said, runtime_s=alone_s / gpus, runtime_high_s=most_s)


def _priced(said: Prediction, price_per_hour: float) -> Prediction:
    runtime_s = said.runtime_s
    return said if runtime_s is None else replace(said, cost=runtime_s / HOUR_S * price_per_hour)


def _ways(job: TrainingJob, nodes: Sequence[Node], short: Mapping[str, str]) -> list[Option]:
    """GPU types and counts that the nodes that take runs offer, before anything is predicted.

    *short* has the short name of each product.
    """
    by_type: dict[str, list[Node]] = {}
    for node in (n for n in nodes if n.state is NodeState.READY):
        names = {short[gpu.name] for gpu in _wanted(node, job)}
        for name in names if job.gpus else ():
            by_type.setdefault(name, []).append(node)
        if not job.gpus or job.resources.cpu_fallback:
            by_type.setdefault("cpu", []).append(node)
    found = []
    for gpu_type, owners in sorted(by_type.items()):
        if gpu_type == "cpu":
            wide_too = {1, *(size.nodes for size in job.sizes if not job.gpus)}
            found += [_way("cpu", owners, n, 0, job) for n in sorted(wide_too) if n <= len(owners)]
            continue
        have = {n.name: len(_cards(n, gpu_type, job, short)) for n in owners}
        largest = max(have.values())
        counts = {1, largest, *(size.gpus for size in job.sizes)} | {2**i for i in range(12)}
        for gpus in sorted(c for c in counts if c <= largest):
            able = [n for n in owners if have[n.name] >= gpus]
            found += [_way(gpu_type, able, 1, gpus, job)]
        # Beyond one node all that each has; and spread as far as it goes what one could hold, too.
        full = [n for n in owners if have[n.name] == largest]
        wide = {(k, largest) for k in range(2, len(full) + 1)}
        wide |= {(size.nodes, size.gpus) for size in job.sizes if size.gpus <= largest}
        wide |= {_spread(count, list(have.values())) for count in counts if count <= largest}
        for count, gpus in sorted(wide, key=lambda each: (each[0] * each[1], each[0])):
            able = [n for n in owners if have[n.name] >= gpus]
            found += [_way(gpu_type, able, count, gpus, job)] if 1 < count <= len(able) else []
    return found


def _spread(gpus: int, have: Sequence[int]) -> tuple[int, int]:
    """Over how many nodes *gpus* can be spread at most, in equal parts, and how large these are.

    *have* are the GPUs that nodes have.
    """
    each = next(
        part
        for part in range(1, gpus + 1)
        if gpus % part == 0 and (part == gpus or sum(n >= part for n in have) >= gpus // part)
    )
    return gpus // each, each


def _wanted(node: Node, job: TrainingJob) -> list[Gpu]:
    """The GPUs of *node* that the wish of *job* allows."""
    return [gpu for gpu in node.capacity.gpus if is_of_type(job.resources.gpu_type, gpu.name)]


def _cards(node: Node, gpu_type: str, job: TrainingJob, short: Mapping[str, str]) -> list[Gpu]:
    """Those of them that are of *gpu_type*: a node may have several products."""
    return [g for g in _wanted(node, job) if short[g.name] == gpu_type]


def _way(gpu_type: str, owners: Sequence[Node], count: int, gpus: int, job: TrainingJob) -> Option:
    """*count* of *owners* with *gpus* on each, priced as the dearest of them.

    By the rule that a run's own cost goes by.
    """
    prices = []
    for node in owners:
        rule = NodeSettings(
            price_per_hour=node.price_per_hour, gpu_price_per_hour=node.gpu_price_per_hour
        )
        cpu_frac = min(1.0, job.resources.cpus / node.capacity.cpus)
        prices.append(rule.cost(HOUR_S, gpus=gpus, cpu_frac=cpu_frac))
    return Option(
        gpu_type=gpu_type,
        nodes=tuple(n.name for n in owners),
        node_count=count,
        gpus=gpus * count,
        prediction=Prediction(),
        host_memory_bytes=0,
        gpu_memory_bytes=0,
        gpu_memory_interval_bytes=None,
        price_per_hour=max(prices, default=0.0) * count,
    )


def _within(
    demand: Demand,
    way: Option,
    spaces: Sequence[NodeSpace],
    job: TrainingJob,
    short: Mapping[str, str],
) -> Demand:
    """*demand* with a guess that the nodes of *way* could not hold cut to what they can give."""
    if demand.host_memory_basis is Basis.PRIOR:
        largest = sorted((each.host_memory_bytes for each in spaces), reverse=True)
        host_bytes = min(demand.host_memory_bytes, largest[way.node_count - 1])
        demand = replace(demand, host_memory_bytes=host_bytes)
    if way.gpus and demand.gpu_memory_basis is Basis.PRIOR:
        cards = [gpu for each in spaces for gpu in _cards(each.node, way.gpu_type, job, short)]
        most_bytes = max(gpu.memory_bytes - gpu.reserve_bytes for gpu in cards)
        gpu_bytes = min(demand.gpu_memory_bytes, most_bytes)
        demand = replace(demand, gpu_memory_bytes=gpu_bytes)
    return demand


def _holds(node: Node, option: Option, job: TrainingJob, short: Mapping[str, str]) -> bool:
    """Whether *node*, empty, could hold one node's part of *option*."""
    capacity, reserve = node.capacity, node.reserve
    each = option.gpus // option.node_count
    cards = _cards(node, option.gpu_type, job, short)
    room = [g.memory_bytes - g.reserve_bytes for g in cards]
    fit = [bytes_ for bytes_ in room if bytes_ >= option.gpu_memory_bytes]
    return (
        option.host_memory_bytes <= capacity.host_memory_bytes - reserve.host_memory_bytes
        and job.resources.cpus <= capacity.cpus - reserve.cpus
        and len(fit) >= each
    )


def _is_asked(option: Option, job: TrainingJob) -> bool:
    """Whether *job* allows this size, where it gives a range."""
    size = Size(option.node_count, option.gpus // option.node_count)
    return not job.is_elastic or size in job.sizes


def _excess(option: Option, budget: float | None, deadline_s: float | None) -> float:
    """See `Option.excess`."""
    if budget is None and deadline_s is None:
        return 0.0
    high_s, wait_s = option.prediction.runtime_high_s, option.wait_s
    if high_s is None or (wait_s is None and deadline_s is not None):
        return math.inf
    cost = high_s / HOUR_S * option.price_per_hour
    used = [] if budget is None else [(cost, budget)]
    used += [] if deadline_s is None else [(high_s + (wait_s or 0.0), deadline_s)]
    return max(need / most if most else math.inf if need else 0.0 for need, most in used)


def _with_pareto(found: Sequence[Option]) -> list[Option]:
    """*found*, with those marked that keep to the limits and that no other such beats.

    In cost, and in the time until their ends where that can be told of any, else in that which
    they run.
    """
    told = any(each.done_s is not None for each in found)
    places = {}
    for at, option in enumerate(found):
        time_s = option.done_s if told else option.prediction.runtime_s
        if option.within and time_s is not None:
            places[at] = time_s, option.prediction.cost or 0.0

    def is_beaten(time_s: float, cost: float) -> bool:
        others = (each for each in places.values() if each != (time_s, cost))
        return any(each[0] <= time_s and each[1] <= cost for each in others)

    return [
        replace(option, pareto=at in places and not is_beaten(*places[at]))
        for at, option in enumerate(found)
    ]


def _ranked(found: Sequence[Option], prefer: Prefer) -> list[Option]:
    def rank(option: Option) -> tuple[float, bool, float, float, int]:
        done_s, cost = option.done_s, option.prediction.cost
        time, money = done_s or option.prediction.runtime_s or 0.0, cost or 0.0
        first, second = (time, money) if prefer is Prefer.FASTEST else (money, time)
        # What keeps to no limit goes by how far it is from that.
        return (max(option.excess, 1.0), done_s is None, first, second, option.gpus)

    ordered = sorted(found, key=rank)
    if ordered and ordered[0].within:
        ordered[0] = replace(ordered[0], chosen=True)
    return ordered


def nothing_fits(nearest: Mapping[str, Any], budget: float | None, deadline_s: float | None) -> str:
    """In a sentence that no option keeps to the limits, and what of *nearest* is above which.

    Args:
        nearest: Document of the first option.
        budget: Most that it may cost.
        deadline_s: Seconds from now by which it must end.
    """
    limits = [] if budget is None else [f"a budget of {budget:g}"]
    limits += [] if deadline_s is None else [f"a deadline in {format_duration(deadline_s)}"]
    said = f"nothing keeps to {' and '.join(limits) or 'the sizes that the job allows'}"
    count, gpus = nearest["node_count"], nearest["gpus"]
    where = f"{gpus} × {nearest['gpu_type']}" if gpus else "the CPU"
    where += f" over {count} nodes" if count > 1 else ""
    high_s, wait_s = nearest["runtime_high_s"], nearest["wait_s"]
    if high_s is None or nearest["excess"] is None:
        return f"{said}, and of nothing can be told that it comes near"
    cost = high_s / HOUR_S * nearest["price_per_hour"]
    needs = [] if budget is None else [f"costs up to {cost:.4g}"]
    if deadline_s is not None:
        needs.append(f"ends within {format_duration(high_s + (wait_s or 0.0))}")
    return f"{said}; nearest comes {where}, which {' and '.join(needs)}"


def document(option: Option) -> dict[str, object]:
    """*option* as plain data, for JSON."""
    said = ("runtime_s", "runtime_low_s", "runtime_high_s", "cost", "basis")
    own = (
        *("gpu_type", "node_count", "gpus", "host_memory_bytes", "gpu_memory_bytes"),
        "gpu_memory_interval_bytes",
        *("price_per_hour", "wait_s", "pareto", "within", "chosen"),
        *("speed_up", "efficiency_frac"),
    )
    return {
        **{name: getattr(option, name) for name in own},
        **{name: getattr(option.prediction, name) for name in said},
        "nodes": list(option.nodes),
        "whole_gpus": option.whole,
        "excess": option.excess if math.isfinite(option.excess) else None,
        "shares": option.shares and {**asdict(option.shares), "words": option.shares.words()},
    }
