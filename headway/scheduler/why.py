"""Why a run waits and what would help, by the very plan that grants."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from headway.forecast import Forecaster
from headway.ledger.records import RunRecord
from headway.model.job import TrainingJob
from headway.model.lease import ANY_PORT, Demand, Lease, Resource
from headway.model.run import Prediction, RunState
from headway.policy.fit import Ask, Headroom, WaitingRun
from headway.policy.plan import Plan, Start, Stay
from headway.policy.pool import Pool
from headway.policy.why import Change, fewer_gpus, is_earlier, smaller_demands
from headway.replay.forward import span_of
from headway.scheduler.announced import is_behind
from headway.scheduler.planning import PoolNow, as_played, read_pool
from headway.scheduler.playing import waits_of
from headway.scheduler.snapshot import node_view
from headway.site import Site

_NOT_YET = "what it needs is being computed: its place in the queue is known in some seconds"
_BUDGET_S = 0.5
"""Of playing the queue once for one change."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that holds some of what is scarce."""

    record: RunRecord
    lease: Lease
    expected_end_at: datetime | None
    """None where nothing is known of its length."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A run that comes first."""

    position: int
    run: WaitingRun
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that would start the run earlier."""

    field: str
    value: int | float | str
    text: str
    entry: Start | Stay
    """What the plan says of the run with the change, submitted anew at this moment."""
    expected_end_at: datetime | None


@dataclass(frozen=True, slots=True)
class Told:
    """What becomes of a run."""

    entry: Start | Stay | None
    """None where nothing can be said of its start."""
    waits: Callable[[], Sequence[float]]
    """How long it waits, each time that the queue is played, which is done once where somebody
    asks; empty where that tells nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that waits, or one that might be submitted."""

    run: WaitingRun
    job: Mapping[str, Any]
    pool: str
    queue: str


@dataclass(frozen=True, slots=True)
class Why:
    """What is to be said of one waiting run."""

    at: datetime
    entry: Start | Stay | None
    """The plan's word; None behind those that are planned for, or where it is held back."""
    held_back: str
    """Why it has no part in the plan; empty where it has."""
    holders: Sequence[Holder]
    ahead: Sequence[Ahead]
    advice: Sequence[Advice]


def why(site: Site, record: RunRecord) -> Why | None:
    """Why the run of *record* waits; None when it does not wait any more."""
    now = read_pool(site, record.pool)
    if record.pool in site.ledger.engines.pools():  # whose plan is the engine's
        waits = record.state is RunState.WAITING and record.suspended_at is None
        said = record.reason or "it is about to be submitted"
        return Why(now.seen.at, None, said, [], [], []) if waits else None
    if record.run_id not in now.waiting.versions:
        return None
    entry = now.waiting.entries.get(record.run_id)
    if entry is None:
        return Why(now.seen.at, None, _NOT_YET, [], [], [])
    made = now.whole_plan()
    base = _told(now, made, entry.run)
    found, asked = base.entry, Asked(entry.run, record.job, record.pool, record.queue)
    held_back = now.left_out.get(record.run_id)
    scarce = found.wait.resource if isinstance(found, Stay) else None
    if held_back is not None and held_back.resource is Resource.TURN:
        # Nobody has what it lacks, and no change of what it asks for would help.
        return Why(now.seen.at, None, held_back.reason, [], [], [])
    return Why(
        now.seen.at,
        found,
        held_back.reason if held_back is not None else "",
        list(_holders(now, scarce, entry.run)),
        list(_ahead(now, made, entry.run)),
        advice(site, now, asked, base),
    )


def _holders(now: PoolNow, scarce: Resource | None, run: Ask) -> Iterator[Holder]:
    """Who has what *run* lacks, those that end first at the beginning."""
    records = {record.run_id: record for record in now.seen.holders}
    found = []
    for lease in now.seen.leases:
        record = records.get(lease.run_id)
        of_team = scarce is not Resource.QUOTA or (record is not None and record.team == run.team)
        gpus = scarce in {Resource.GPUS, Resource.GPU_MEMORY}
        other_ports = scarce is Resource.PORTS and run.ports.isdisjoint({*lease.ports, ANY_PORT})
        if record is None or not of_team or (gpus and not lease.gpus) or other_ports:
            continue
        left = now.known.left(record, now.seen.at)
        ends = None if left is None else now.seen.at + timedelta(seconds=left.median_s)
        found.append(Holder(record, lease, ends))
    known = [one for one in found if one.expected_end_at is not None]
    yield from sorted(known, key=lambda one: (one.expected_end_at, one.record.run_id))
    yield from (one for one in found if one.expected_end_at is None)


def _ahead(now: PoolNow, made: Plan, run: WaitingRun) -> Iterator[Ahead]:
    at_s = now.seen.at.timestamp()
    for position, each in enumerate(made.entries, start=1):
        if each.run_id == run.run_id:
            return
        other = now.waiting.entries[each.run_id].run
        if other.priority > run.priority:
            reason = "it has a higher priority"
        elif other.promised_s is not None and other.promised_s <= at_s:
            reason = "it has waited until the start that it was promised"
        else:
            reason = (
                "it is shorter or came earlier: with equal shares of the nodes it would end first"
            )
        yield Ahead(position, other, reason)


def told(now: PoolNow, run: WaitingRun) -> Told:
    """What becomes of *run*, which joins the queue now."""
    return _told(now, now.plan([run]), run, [run])


def _told(now: PoolNow, made: Plan, run: WaitingRun, also: Sequence[WaitingRun] = ()) -> Told:
    """What becomes of *run* by *made*; for one of *also*, who joins now, the queue is played."""
    entry = made.entry(run.run_id)
    if isinstance(entry, Start):
        return Told(entry, lambda: [0.0])

    @cache
    def waits() -> Sequence[float]:
        return waits_of(now, {run.run_id}, also, budget_s=_BUDGET_S).get(run.run_id, [])

    if not also or (entry is not None and entry.expected_at is None):
        return Told(entry, waits)
    wait = now.wait_near(run) if entry is None else None
    if wait is None:
        wait = span_of(waits()) if waits() else None
    if entry is None and wait is not None:
        position = len(now.waiting.entries) + 1
        entry = Stay(run.run_id, position, is_behind(len(made.entries)), now.seen.at)
    return Told(entry and as_played(entry, wait, now.seen.at, now.known.starts), waits)


def advice(site: Site, now: PoolNow, asked: Asked, base: Told) -> list[Advice]:
    """Of each kind of change the smallest that starts the run earlier; soonest start first."""
    found = []
    if isinstance(base.entry, Start):
        return []
    for changes in _changes(site, now, asked):
        for change, changed in changes:
            if (better := _better(now, changed, base)) is not None:
                found.append(_as_advice(change, changed, better, now))
                break
    for pool in sorted({one.node.pool for one in site.ledger.nodes.all()} - {asked.pool}):
        other = read_pool(site, pool)
        run = _anew(asked.run, other)
        if (better := _better(other, run, base)) is not None:
            change = Change("pool", 0, f"on pool {pool}", run.demand)
            found.append(replace(_as_advice(change, run, better, other), value=pool))
    return sorted(found, key=lambda one: _wait_s(one.entry, now.seen.at) or 0.0)


def _better(now: PoolNow, changed: WaitingRun, base: Told) -> Start | Stay | None:
    """What becomes of *changed* where that is notably earlier; None where it is not."""
    planned = now.plan([changed]).entry(changed.run_id)
    if planned is None or (isinstance(planned, Stay) and planned.expected_at is None):
        return None  # Playing the queue costs more, and would hardly say otherwise.
    with_it = told(now, changed)
    if isinstance(with_it.entry, Start):
        return with_it.entry
    waits, others = with_it.waits(), base.waits()
    return with_it.entry if waits and others and is_earlier(waits, others) else None


def _changes(site: Site, now: PoolNow, asked: Asked) -> Iterator[list[tuple[Change, WaitingRun]]]:
    run = asked.run
    for changes in smaller_demands(run.demand, _headroom(now)):
        yield [(change, _anew(run, now, change.demand)) for change in changes]
    if run.nodes > 1:
        return
    forecaster, fewer = Forecaster(site), []
    for gpus in fewer_gpus(run.demand.gpus):
        document, resources = dict(asked.job), dict(asked.job.get("resources") or {})
        least, _, most = str(resources.get("gpus")).partition("-")
        value = f"{gpus}-{most}" if most else gpus
        document["resources"] = {**resources, "gpus": value}
        job = TrainingJob.model_validate(document)
        said, demand = forecaster.forecast(job, pool=asked.pool, queue=asked.queue)
        text = f"{value} GPU{'' if value == 1 else 's'} instead of {resources['gpus']}"
        # With a range that begins there it starts as early, and may have more all the same.
        text += "" if most or job.resources.cpu_fallback else f", or {gpus}-{least}"
        change = Change("resources.gpus", value, text, demand)
        fewer.append((change, _anew(run, now, demand, said)))
    yield fewer


def _headroom(now: PoolNow) -> Sequence[Headroom]:
    views = [node_view(each, now.seen) for each in now.seen.nodes]
    return Pool(views, (), now.waiting.settings).board().nodes


def _anew(
    run: WaitingRun, now: PoolNow, demand: Demand | None = None, said: Prediction | None = None
) -> WaitingRun:
    """*run* as it would join the queue now: it gets another tag, and another promise."""
    return WaitingRun.of(
        run.run_id,
        demand or run.demand,
        now.seen.at,
        settings=now.waiting.settings,
        median_s=said.runtime_s if said else run.median_s,
        high_s=said.runtime_high_s if said else run.high_s,
        limit_s=run.limit_s,
        team=run.team,
        user=run.user,
        priority=run.priority,
        nodes=run.nodes,
        node=run.node,
        queue=run.queue,
        lasts=said.learnt if said else run.lasts,
        name=run.name,
    )


def _wait_s(entry: Start | Stay | None, at: datetime) -> float | None:
    if isinstance(entry, Start):
        return 0.0
    if isinstance(entry, Stay) and entry.expected_at is not None:
        return max((entry.expected_at - at).total_seconds(), 0.0)
    return None


def _as_advice(change: Change, run: WaitingRun, entry: Start | Stay, now: PoolNow) -> Advice:
    wait_s, lasts = _wait_s(entry, now.seen.at), run.lasts
    ends = None
    if wait_s is not None and lasts is not None:
        ends = now.seen.at + timedelta(seconds=wait_s + lasts.median_s)
    return Advice(change.field, change.value, change.text, entry, ends)
