"""Where and how large to run a job: what each way takes, costs and needs, and which to choose."""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.estimate.features import from_job
from headway.estimate.framework_memory import host_guess
from headway.estimate.gpu_prior import gpu_memory_guess
from headway.estimate.prior import demand_for
from headway.estimate.recall import said_of
from headway.estimate.usual import Found, instead_of_prior
from headway.model.job import TrainingJob
from headway.model.lease import Basis, Demand, Sharing
from headway.model.node import NodeSpace, NodeState, is_of_type
from headway.model.node_settings import price_on
from headway.model.run import Prediction
from headway.model.size import Size
from headway.model.trace import Trace
from headway.policy.admission import possible
from headway.policy.demand import within
from headway.units import CURRENCY, HOUR_S, format_duration

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
    demand: Demand
    """On each node."""
    gpu_memory_interval_bytes: tuple[int, int] | None
    """What each GPU holds lies in it four times of five; None where it is no guess by its network.
    """
    price_per_hour: float
    wait_s: float | None = None
    """Expected until it could start; None when nothing can be said."""
    speed_up: float | None = None
    """Runtime on one such GPU over that on these; None where either is not known."""
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
    def has_whole_gpus(self) -> bool:
        """Each GPU alone, as is asked for or because nothing is known of what it needs."""
        return bool(self.gpus) and self.demand.sharing is Sharing.WHOLE

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
    products = {gpu.name for node, _ in spaces for gpu in node.capacity.gpus}
    short = {product: estimators.tables.gpu_name(product) for product in products}
    ways = [way for way in _ways(job, spaces, short) if gangs or way.node_count == 1]
    configurations = [
        from_job(job, gpu_type=w.gpu_type, gpus=w.gpus, nodes=w.node_count) for w in ways
    ]
    learnt = estimators.predict(configurations)
    named = [replace(t, gpu_type=estimators.tables.gpu_name(t.gpu_type)) for t in recent]
    predictions = []
    for c, each in zip(configurations, learnt, strict=True):
        said = said_of(c, each, named, limit_s=job.max_runtime, is_session=job.session is not None)
        if said.learnt is None:
            said = instead_of_prior(said, usual)
        predictions.append(said)
    alone_s = {
        way.gpu_type: said.runtime_s
        for way, said in zip(ways, predictions, strict=True)
        if way.gpus == 1 and said.learnt_runtime_s is not None
    }
    found = []
    for way, asked, said in zip(ways, configurations, predictions, strict=True):
        price_per_hour = way.price_per_hour(job.resources.cpus)
        prediction = _possible(said, alone_s.get(way.gpu_type), way.gpus)
        if prediction.runtime_s is not None:
            cost = prediction.runtime_s / HOUR_S * price_per_hour
            prediction = replace(prediction, cost=cost)
        guess = gpu_memory_guess(asked, estimators.tables)
        demand = demand_for(
            job,
            prediction,
            host_guess=host_guess(job, way.on_each, way.spaces),
            gpu_guess_bytes=guess and guess.upper_bytes,
        )
        # Its nodes are shown with the GPUs of its type alone.
        demand = replace(demand, gpus=way.on_each, gpu_type="")
        if not way.gpus:
            demand = replace(demand, gpu_memory_bytes=0)
        demand = within(demand, way.spaces, way.node_count)
        room = replace(demand, ports=())
        fitting = [node.name for node, _ in way.spaces if possible(room, [node]) is None]
        is_guess = demand.gpu_memory_basis is Basis.PRIOR and prediction.gpu_held_bytes is None
        option = Option(
            way.gpu_type,
            tuple(fitting),
            way.node_count,
            way.gpus,
            prediction,
            demand,
            guess[1:3] if guess and is_guess else None,
            price_per_hour,
            speed_up=_speed_up(alone_s.get(way.gpu_type), prediction),
        )
        if len(fitting) >= way.node_count and is_allowed(option):
            option = replace(option, wait_s=wait_s(option))
            excess = _excess(option, budget, deadline_s) if _is_asked(option, job) else math.inf
            found.append(replace(option, excess=excess))
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


@dataclass(frozen=True, slots=True)
class _Way:
    """Where to run a job, before anything is predicted."""

    gpu_type: str
    spaces: Sequence[NodeSpace]
    """Nodes that have enough GPUs of the type; no other GPUs of theirs are among these."""
    node_count: int
    on_each: int
    """GPUs of a node."""

    @property
    def gpus(self) -> int:
        """In all."""
        return self.node_count * self.on_each

    def price_per_hour(self, cpus: float) -> float:
        """On as many nodes as it needs, each as dear as the dearest."""
        prices = (price_on(node, HOUR_S, gpus=self.on_each, cpus=cpus) for node, _ in self.spaces)
        return self.node_count * max(prices)


def _ways(job: TrainingJob, spaces: Sequence[NodeSpace], short: Mapping[str, str]) -> list[_Way]:
    """GPU types and counts that the nodes that take runs offer.

    *short* has the short name of each product.
    """
    ready = [each for each in spaces if each.node.state is NodeState.READY]
    found = []
    if not job.gpus or job.resources.cpu_fallback:
        counts = {1, *(size.nodes for size in job.sizes if not job.gpus)}
        none = [_only(each, lambda _: False) for each in ready]
        found = [_Way("cpu", none, n, 0) for n in sorted(counts) if n <= len(ready)]
    wanted = [name for name in short if job.gpus and is_of_type(job.resources.gpu_type, name)]
    for gpu_type in sorted({short[name] for name in wanted}):
        own = {name for name in wanted if short[name] == gpu_type}
        having = [_only(each, own.__contains__) for each in ready]
        having = [each for each in having if each.node.capacity.gpus]
        have = [len(each.node.capacity.gpus) for each in having]
        largest = max(have, default=0)
        counts = {1, largest, *(size.gpus for size in job.sizes)} | {2**i for i in range(12)}
        counts = {count for count in counts if 1 <= count <= largest}
        # Beyond one node all that each has; and spread as far as it goes what one could hold, too.
        shapes = {(1, count) for count in counts} | {_spread(count, have) for count in counts}
        shapes |= {(nodes, largest) for nodes in range(2, have.count(largest) + 1)}
        shapes |= {(size.nodes, size.gpus) for size in job.sizes if size.gpus <= largest}
        for nodes, on_each in sorted(shapes):
            able = [each for each in having if len(each.node.capacity.gpus) >= on_each]
            found += [_Way(gpu_type, able, nodes, on_each)] if nodes <= len(able) else []
    return found


def _only(space: NodeSpace, is_wanted: Callable[[str], bool]) -> NodeSpace:
    """*space* without the GPUs whose products are not wanted."""
    capacity = space.node.capacity
    gpus = tuple(gpu for gpu in capacity.gpus if is_wanted(gpu.name))
    return space._replace(node=replace(space.node, capacity=replace(capacity, gpus=gpus)))


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
    limits = [] if budget is None else [f"a budget of {budget:g} ({CURRENCY})"]
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
        *("gpu_type", "node_count", "gpus", "gpu_memory_interval_bytes"),
        *("price_per_hour", "wait_s", "pareto", "within", "chosen"),
        *("speed_up", "efficiency_frac"),
    )
    return {
        **{name: getattr(option, name) for name in own},
        **{name: getattr(option.prediction, name) for name in said},
        "runtime_known": option.prediction.told is not None,
        "nodes": list(option.nodes),
        "host_memory_bytes": option.demand.host_memory_bytes,
        "gpu_memory_bytes": option.demand.gpu_memory_bytes,
        "whole_gpus": option.has_whole_gpus,
        "excess": option.excess if math.isfinite(option.excess) else None,
    }
