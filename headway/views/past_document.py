"""What happened at a site, replayed; and what would have, with other rules or other machines."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from headway.errors import InvalidInput
from headway.ledger.records import RunRecord
from headway.model.lease import Sharing
from headway.model.node import Gpu, Node
from headway.model.run import RunState
from headway.policy.settings import PolicySettings, TeamSettings
from headway.replay.cluster import Job, Machines, to_job
from headway.replay.history import Told
from headway.replay.metrics import document
from headway.replay.simulate import PolicyName, Result, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob
from headway.scheduler.snapshot import kind_of_run
from headway.site import Site
from headway.units import HOUR_S, MINUTE_S

_MORE_MEMORY = 1.5
_NEAR_S = 10 * MINUTE_S


@dataclass(frozen=True, slots=True)
class _Past:
    """What a site did in a span of time."""

    rows: Sequence[TraceJob]
    starts_s: Sequence[float]
    """When each of them started."""
    nodes: Sequence[Node]
    left_out: int
    """Runs that no node which is there now could hold."""
    span_s: float


@dataclass(frozen=True, slots=True)
class _Option:
    """What might be different."""

    name: str
    policy: PolicyName
    nodes: Sequence[Node]
    settings: PolicySettings
    price_per_hour: float | None = 0.0
    """Of what is added; None where nobody has said what it costs."""


def past_view(
    site: Site,
    last_s: float,
    *,
    more_gpus: int = 2,
    weights: "dict[str, TeamSettings] | None" = None,
    report: Callable[[str], None] = lambda _name: None,
) -> dict[str, Any]:
    """The last *last_s* seconds of this node's pool replayed, as it was and otherwise.

    Args:
        site: Where.
        last_s: So far back.
        more_gpus: So many are added to the node with the most of them.
        weights: Other weights of teams to try.
        report: Called with the name of each replay.

    Raises:
        InvalidInput: Nothing ran in that time.
    """
    past = _read(site, last_s)
    same = _Option("as it is", PolicyName.HEADWAY, past.nodes, site.policy_settings)
    report(same.name)
    base = _replayed(past, same)
    waited = [job.start_s - job.trace.submit_s for job in base.jobs]
    happened = [
        start_s - row.submit_s for start_s, row in zip(past.starts_s, past.rows, strict=True)
    ]
    apart = [abs(ours - was) for ours, was in zip(waited, happened, strict=True)]
    found = []
    for option in _options(past, same, more_gpus, weights or {}):
        report(option.name)
        found.append(_option_view(past, option, _replayed(past, option), sum(waited)))
    return {
        "runs": len(past.rows),
        "left_out": past.left_out,
        "span_s": past.span_s,
        "happened": {"mean_wait_s": statistics.mean(happened), "max_wait_s": max(happened)},
        "replayed": {"mean_wait_s": statistics.mean(waited), "max_wait_s": max(waited)},
        "median_apart_s": statistics.median(apart),
        "near_frac": sum(each <= _NEAR_S for each in apart) / len(apart),
        "options": sorted(found, key=_rank),
    }


def _read(site: Site, last_s: float) -> _Past:
    now = site.ledger.now()
    since = now - timedelta(seconds=last_s)
    pool = site.settings.pool
    nodes = [one.node for one in site.ledger.nodes.all() if one.node.pool == pool]
    records = site.ledger.runs.held_since(since, pool)
    machines = Machines.of(nodes)
    board = machines.board(site.policy_settings.utilisation_limit)
    rows, starts_s, left_out = [], [], 0
    for record in records:
        row, start_s = _row(record, since, now)
        ask = _job(row, 0, machines).ask
        if sum(node.could_hold(ask) for node in board.nodes) < ask.nodes:
            left_out += 1
            continue
        rows.append(row)
        starts_s.append(start_s)
    if not rows:
        raise InvalidInput("--last", last_s, f"no run had its place in pool {pool} in that time")
    order = sorted(range(len(rows)), key=lambda at: rows[at].submit_s)
    return _Past(
        [rows[at] for at in order], [starts_s[at] for at in order], nodes, left_out, last_s
    )


def _row(record: RunRecord, since: datetime, now: datetime) -> tuple[TraceJob, float]:
    """A run as a job of a trace that begins at *since*, and when it started there."""

    def at_s(moment: datetime | None) -> float:
        return max(((moment or now) - since).total_seconds(), 0.0)

    demand, said, start_s = record.demand, record.prediction, at_s(record.claimed_at)
    median_s = (said.runtime_s if said else None) or 0.0
    high_s = (said.runtime_high_s if said else None) or median_s
    ended_s = at_s(record.ended_at if record.state is RunState.ENDED else now)
    kind = kind_of_run(record)
    row = TraceJob(
        job_id=record.run_id,
        team=record.team,
        submit_s=min(at_s(record.submitted_at), start_s),
        duration_s=max(ended_s - start_s, 1.0),
        gpus=demand.gpus * record.nodes if demand else 0,
        gpu_memory_bytes=demand.gpu_memory_bytes if demand else 0,
        gpu_util_frac=demand.gpu_utilisation_frac if demand else 0.0,
        limit_s=kind.limit_s,
        predicted_s=(median_s, max(high_s, median_s)),
        user=record.owner,
        recipe=kind.recipe,
        host_memory_bytes=demand.host_memory_bytes if demand else 0,
        cpus=demand.cpus if demand else 0.0,
        whole=demand is not None and demand.sharing is Sharing.WHOLE,
        host_peak_bytes=(record.measurement.host_peak_bytes or 0) if record.measurement else 0,
        preemptible=bool(record.job.get("preemptible")),
    )
    return row, start_s


def _job(row: TraceJob, number: int, machines: Machines) -> Job:
    told = Told(1.0, 1.0, row.gpu_util_frac)
    return to_job(
        row, number, told, shape=machines, sharing=GpuSharing.HEADWAY, utilisation_limit=1.0
    )


def _options(
    past: _Past, same: _Option, more_gpus: int, weights: dict[str, TeamSettings]
) -> Iterator[_Option]:
    """What might be different: one thing each."""
    if any(row.preemptible for row in past.rows):
        lends = not same.settings.lend_host_memory
        settings = replace(same.settings, lend_host_memory=lends)
        yield replace(
            same, name=f"idle host memory is {'' if lends else 'not '}lent", settings=settings
        )
    largest = max(same.nodes, key=lambda node: len(node.capacity.gpus))
    if more_gpus and largest.capacity.gpus:
        name = f"{more_gpus} more GPUs on {largest.name}"
        nodes = [_with_gpus(node, more_gpus) if node is largest else node for node in same.nodes]
        price = more_gpus * largest.gpu_price_per_hour
        yield replace(same, name=name, nodes=nodes, price_per_hour=price or None)
    nodes = [_with_memory(node) for node in same.nodes]
    name = f"{_MORE_MEMORY:g} × the host memory on each node"
    yield replace(same, name=name, nodes=nodes, price_per_hour=None)
    teams = same.settings.teams
    if weights:
        given = ", ".join(f"{name}={each.weight:g}" for name, each in weights.items())
        changed = {
            name: replace(teams.get(name, TeamSettings()), weight=each.weight)
            for name, each in weights.items()
        }
        settings = replace(same.settings, teams={**teams, **changed})
        yield replace(same, name=f"weights {given}", settings=settings)
    if any(each.weight != 1.0 for each in teams.values()):
        alike = {name: replace(each, weight=1.0) for name, each in teams.items()}
        settings = replace(same.settings, teams=alike)
        yield replace(same, name="all teams with one weight", settings=settings)
    factor = 2 * same.settings.promise_factor
    settings = replace(same.settings, promise_factor=factor)
    yield replace(same, name=f"promises twice as far off ({factor:g})", settings=settings)
    yield replace(same, name="backfill with one reservation (EASY)", policy=PolicyName.EASY)
    yield replace(same, name="first come, first served", policy=PolicyName.FIFO)


def _with_gpus(node: Node, more: int) -> Node:
    gpus, last = node.capacity.gpus, node.capacity.gpus[-1]
    added: list[Gpu] = [
        replace(last, uuid=f"{last.uuid}+{at}", index=len(gpus) + at) for at in range(more)
    ]
    return replace(node, capacity=replace(node.capacity, gpus=(*gpus, *added)))


def _with_memory(node: Node) -> Node:
    size = int(node.capacity.host_memory_bytes * _MORE_MEMORY)
    return replace(node, capacity=replace(node.capacity, host_memory_bytes=size))


def _replayed(past: _Past, option: _Option) -> Result:
    unknown_s = option.settings.unknown_runtime_s
    rows = [
        row if row.predicted_s[0] else replace(row, predicted_s=(unknown_s, unknown_s))
        for row in past.rows
    ]
    machines, sharing = Machines.of(option.nodes), GpuSharing.HEADWAY
    return simulate(
        rows, machines, option.policy, sharing, Estimates.GIVEN, settings=option.settings
    )


def _option_view(past: _Past, option: _Option, result: Result, waited_s: float) -> dict[str, Any]:
    figures = document(result, option.policy, Estimates.GIVEN, GpuSharing.HEADWAY, option.settings)
    saved_h = (waited_s - figures["mean_wait_s"] * len(result.jobs)) / HOUR_S
    price = option.price_per_hour
    cost = None if price is None else price * past.span_s / HOUR_S
    return {
        "name": option.name,
        "saved_h": saved_h,
        "cost": cost,
        "saved_h_per_cost": saved_h / cost if cost else None,
        "by_team": [
            {"team": each["team"], "mean_wait_s": each["mean_wait_s"]}
            for each in figures["by_team"]
        ],
        **{name: figures[name] for name in ("mean_wait_s", "max_wait_s", "utilisation_frac")},
    }


def _rank(option: dict[str, Any]) -> tuple[int, float]:
    """What costs nothing first, then by what is saved for the money, then what has no price."""
    saved_h, cost = option["saved_h"], option["cost"]
    if saved_h <= 0:
        return 3, -saved_h
    if cost is None:
        return 2, -saved_h
    return (1, -saved_h / cost) if cost else (0, -saved_h)


def saved_text(option: dict[str, Any]) -> str:
    """What an option saves for its cost, for people."""
    if option["cost"] is None:
        return "no price known"
    if not option["cost"]:
        return "costs nothing"
    return f"{option['saved_h_per_cost']:.3g} h for 1"
