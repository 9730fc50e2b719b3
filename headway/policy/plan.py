"""The plan of a pool: the same on every worker that computes it from the same rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from headway.model.lease import Admit, Demand, GpuGrant, Lease, Sharing, Wait
from headway.model.node import GpuReading, Node, NodeReading
from headway.policy.board import Ask, Board, NodeRooms, Place
from headway.policy.decide import Held, Outcome, decide
from headway.policy.headroom import compute_headroom
from headway.policy.order import bands, due_first
from headway.policy.preempt import Runner
from headway.policy.reasons import Outlook, explain, outlook
from headway.policy.room import NOTHING, Need, Occupant, Room
from headway.policy.settings import PolicySettings

_A_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of the pool as the ledger has it."""

    node: Node
    leases: tuple[Lease, ...] = ()
    """Every unreleased lease of the node, expired ones too."""
    reading: NodeReading | None = None
    """The last one; None to go by the ledger alone."""


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """One run in the line."""

    run_id: str
    demand: Demand
    """On each node."""
    submitted_at: datetime
    team: str = ""
    priority: int = 0
    """Larger goes first."""
    median_s: float | None = None
    """Predicted runtime; None when nothing is known."""
    high_s: float | None = None
    """Its upper quantile."""
    nodes: int = 1
    """Above 1: a gang, which starts on all of them or not at all."""
    node: str = ""
    """The only node it may run on; empty for any of the pool."""
    overtaken: int = 0
    """Later runs of at most its priority that have started since its submission."""
    long_waited: bool = False
    """Goes to the front of its priority; see `order.waited_long`."""


@dataclass(frozen=True, slots=True)
class RunningRun:
    """One run that holds leases of the pool."""

    run_id: str
    team: str = ""
    priority: int = 0
    median_end_at: datetime | None = None
    """Predicted end; None when nothing is known."""
    preemptible: bool = False
    stopping: bool = False
    """Was told to stop for a higher priority, and is still within its grace time."""
    gang_id: str = ""
    """The run whose part on another node this is; what it holds counts as that run's."""


@dataclass(frozen=True, slots=True)
class Start:
    """This run starts now."""

    run_id: str
    position: int
    admits: tuple[Admit, ...]
    """One for each node; all leases of a gang are to be had in one transaction."""


@dataclass(frozen=True, slots=True)
class Stay:
    """This run waits."""

    run_id: str
    position: int
    """1 for the first of the line."""
    wait: Wait
    """What is scarce, in words and numbers."""
    expected_at: datetime | None = None
    """By the medians; None when no node that takes runs could ever hold it."""
    earliest_at: datetime | None = None
    latest_at: datetime | None = None
    """By the upper quantiles."""
    reserved: tuple[str, ...] = ()
    """Nodes that are held for it from `latest_at` at the latest; empty without a reservation."""

    def sentence(self) -> str:
        """Why it waits, its place, and when it may start: the state's message on its page."""
        said = f"{self.wait.reason}; number {self.position} in line"
        if self.expected_at is None:
            return said
        first, last = self.expected_at, self.latest_at or self.expected_at
        day = "" if last.date() == first.date() else f"{last:%d %b} "
        to = f" to {day}{last:%H:%M}" if last - first >= _A_MINUTE else ""
        return f"{said}, expected to start {first:%d %b %H:%M}{to} UTC"


@dataclass(frozen=True, slots=True)
class Preempt:
    """This running run is to be stopped, with its grace time, for another."""

    run_id: str
    for_run_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of the first `window` runs of the line."""

    entries: tuple[Start | Stay, ...] = ()
    """In the order of the line."""
    preempts: tuple[Preempt, ...] = ()


def plan(
    nodes: Sequence[NodeView],
    waiting: Sequence[WaitingRun],
    running: Sequence[RunningRun],
    *,
    now: datetime,
    settings: PolicySettings,
    usage: Mapping[str, float] | None = None,
) -> Plan:
    """Plan for one pool.

    It depends on the values only, not on the order of the rows.

    Args:
        nodes: Every node of the pool.
        waiting: The line, in any order. Only its first `window` runs are planned for.
        running: The runs that the leases belong to; a lease whose run is not
            among them counts, but is never preempted nor held against a quota.
        now: The time of the rows, aware: the database's, the same for all workers.
        settings: The knobs.
        usage: Decayed GPU-seconds of the teams; see `order.interval_usage`.

    Returns:
        What becomes of the first runs of the line.
    """
    views = _as_gangs(sorted(nodes, key=lambda view: view.node.name), running)
    now_s = now.timestamp()
    asks = [ask_of(run, settings) for run in waiting]
    names = [*(one.team for one in waiting), *(one.team for one in running)]
    teams = dict.fromkeys(names, 0.0) | dict(usage or {})
    front = due_first(asks, bands(teams, settings), settings)[: settings.window]
    elders = [a for a in asks if a.overtaken >= settings.overtake_bound - settings.window]
    elders.sort(key=lambda ask: (ask.submitted_s, ask.run_id))
    board = Board([_rooms(view, settings) for view in views])
    holders = _holders(views, running, settings)
    held: dict[str, Held] = {}
    for runner in holders:
        held.setdefault(runner.run.team, Held()).add(runner.runner.ask)
    outcomes = decide(
        board,
        front,
        elders,
        held,
        now_s=now_s,
        settings=settings,
        runners=[one.runner for one in holders if one.run.preemptible],
    )
    medians = Board([_rooms(view, settings, _medians(running)) for view in views])
    medians.look_anew(now_s, settings.overrun_frac)
    board_now = _Now(views, board, medians, now_s, settings)
    entries: list[Start | Stay] = []
    preempts: list[Preempt] = []
    seen = Outlook()
    for position, outcome in enumerate(outcomes, start=1):
        seen = outlook(seen, outcome, board, medians, now_s)
        entries.append(_entry(position, outcome, seen, board_now, held))
        preempts += [
            Preempt(one.ask.run_id, outcome.ask.run_id)
            for one in outcome.preempts
            if not one.stopping
        ]
    return Plan(tuple(entries), tuple(preempts))


def _as_gangs(views: Sequence[NodeView], running: Sequence[RunningRun]) -> list[NodeView]:
    """*views* with what each rank of a gang holds as one run's: its ranks come and go together."""
    gang_of = {one.run_id: one.gang_id for one in running if one.gang_id}
    if not gang_of:
        return list(views)
    return [
        replace(
            view,
            leases=tuple(
                replace(lease, run_id=gang_of.get(lease.run_id, lease.run_id))
                for lease in view.leases
            ),
            reading=view.reading and _reading_of_gangs(view.reading, gang_of),
        )
        for view in views
    ]


def _reading_of_gangs(reading: NodeReading, gang_of: Mapping[str, str]) -> NodeReading:
    def of_gang(gpu: GpuReading) -> GpuReading:
        return replace(
            gpu,
            processes=tuple(
                replace(each, run_id=gang_of.get(each.run_id, each.run_id))
                for each in gpu.processes
            ),
        )

    return replace(
        reading,
        gpus=reading.gpus and tuple(of_gang(gpu) for gpu in reading.gpus),
        run_host_bytes={gang_of.get(run, run): n for run, n in reading.run_host_bytes.items()},
    )


@dataclass(frozen=True, slots=True)
class _Now:
    views: Sequence[NodeView]
    board: Board
    medians: Board
    now_s: float
    settings: PolicySettings


@dataclass(frozen=True, slots=True)
class _Holder:
    run: RunningRun
    runner: Runner


def ask_of(run: WaitingRun, settings: PolicySettings) -> Ask:
    """What *run* asks of the board."""
    demand = run.demand
    median_s = run.median_s if run.median_s is not None else settings.unknown_runtime_s
    return Ask(
        run_id=run.run_id,
        submitted_s=run.submitted_at.timestamp(),
        gpus=demand.gpus,
        gpu=_gpu_need(demand, settings),
        median_s=max(median_s, 1.0),
        high_s=max(run.high_s if run.high_s is not None else median_s, median_s, 1.0),
        host=Need(demand.host_memory_bytes, demand.cpus),
        nodes=run.nodes,
        node=run.node,
        gpu_type=demand.gpu_type,
        ports=frozenset(demand.ports),
        disk_bytes=demand.disk_bytes,
        team=run.team,
        priority=run.priority,
        overtaken=run.overtaken,
        long_waited=run.long_waited,
    )


def _gpu_need(demand: Demand, settings: PolicySettings) -> Need:
    if demand.gpus == 0:
        return NOTHING
    # An empty GPU takes anybody: a limit below one run's own utilisation would starve it.
    load = min(demand.gpu_utilisation_frac, settings.utilisation_limit)
    return Need(max(demand.gpu_memory_bytes, 1), load, whole=demand.sharing is Sharing.WHOLE)


def _rooms(
    view: NodeView, settings: PolicySettings, ends: Mapping[str, float] | None = None
) -> NodeRooms:
    """The rooms of a node: headroom as it is now, and who leaves when.

    Args:
        view: The node.
        settings: For the utilisation limit and runs of unknown length.
        ends: Ends by run to go by instead of the leases'.
    """
    headroom = compute_headroom(view.node, view.leases, view.reading)
    cpus = view.node.capacity.cpus - view.node.reserve.cpus
    host = Room(
        view.node.capacity.host_memory_bytes - view.node.reserve.host_memory_bytes,
        cpus,
        headroom.host_memory_bytes,
        cpus - headroom.cpus,
    )
    gpus = {
        gpu.uuid: Room(
            gpu.whole_bytes,
            settings.utilisation_limit,
            gpu.memory_bytes,
            gpu.utilisation_frac,
            foreign=gpu.foreign,
        )
        for gpu in headroom.gpus
    }
    for lease in view.leases:
        started_s, end_s = _times(lease, settings, ends or {})
        who = Occupant(end_s, lease.run_id, started_s, end_s, _host_need(lease))
        host.occupants.append(who)
        for grant in lease.gpus:
            if grant.uuid in gpus:
                gpus[grant.uuid].occupants.append(who._replace(need=_grant_need(grant)))
    for room in (host, *gpus.values()):
        room.occupants.sort()
    return NodeRooms(
        name=view.node.name,
        host=host,
        gpus=list(gpus.values()),
        gpu_names=tuple(gpu.name for gpu in headroom.gpus),
        ports=set(headroom.ports_taken),
        disk_bytes=headroom.disk_bytes,
        closed=headroom.closed_reason,
        gpu_error=headroom.gpu_error,
        lost_gpus=headroom.lost_gpus,
    )


def _times(
    lease: Lease, settings: PolicySettings, ends: Mapping[str, float]
) -> tuple[float, float]:
    started_s = lease.granted_at.timestamp()
    if lease.run_id in ends:
        return started_s, ends[lease.run_id]
    if lease.predicted_end_at is None:
        return started_s, started_s + settings.unknown_runtime_s
    return started_s, lease.predicted_end_at.timestamp()


def _host_need(lease: Lease) -> Need:
    return Need(lease.host_memory_bytes, lease.cpus)


def _grant_need(grant: GpuGrant) -> Need:
    whole = grant.sharing is Sharing.WHOLE
    return Need(grant.memory_bytes, grant.utilisation_frac, whole)


def _medians(running: Sequence[RunningRun]) -> dict[str, float]:
    return {one.run_id: one.median_end_at.timestamp() for one in running if one.median_end_at}


def _holders(
    views: Sequence[NodeView], running: Sequence[RunningRun], settings: PolicySettings
) -> list[_Holder]:
    """Each running run with what it holds and where."""
    leases: dict[str, list[tuple[int, Lease]]] = {}
    for at, view in enumerate(views):
        for lease in view.leases:
            leases.setdefault(lease.run_id, []).append((at, lease))
    found: list[_Holder] = []
    for run in sorted(running, key=lambda one: one.run_id):
        mine = leases.get(run.run_id, [])
        if not mine:
            continue
        first = mine[0][1]
        started_s, end_s = _times(first, settings, {})
        places = tuple(Place(at, _positions(views[at], lease)) for at, lease in mine)
        ask = Ask(
            run_id=run.run_id,
            submitted_s=started_s,
            gpus=max(len(lease.gpus) for _, lease in mine),
            gpu=_grant_need(first.gpus[0]) if first.gpus else NOTHING,
            median_s=end_s - started_s,
            high_s=end_s - started_s,
            host=_host_need(first),
            nodes=len(mine),
            ports=frozenset(first.ports),
            team=run.team,
            priority=run.priority,
        )
        found.append(_Holder(run, Runner(ask, places, started_s, run.stopping)))
    return found


def _positions(view: NodeView, lease: Lease) -> tuple[int, ...]:
    """Positions of the lease's GPUs among those that can be read now."""
    headroom = compute_headroom(view.node, view.leases, view.reading)
    uuids = {grant.uuid for grant in lease.gpus}
    return tuple(at for at, gpu in enumerate(headroom.gpus) if gpu.uuid in uuids)


def _entry(
    position: int, outcome: Outcome, seen: Outlook, at: _Now, held: Mapping[str, Held]
) -> Start | Stay:
    if outcome.start:
        admits = tuple(_admit(outcome.ask, place, at.views) for place in outcome.start)
        return Start(outcome.ask.run_id, position, admits)
    wait = explain(outcome, at.board, held, now_s=at.now_s, settings=at.settings)
    stay = Stay(outcome.ask.run_id, position, wait)
    if math.isinf(seen.latest_s):  # nobody can say when, of a disk that is full for one
        return stay
    return replace(
        stay,
        expected_at=datetime.fromtimestamp(seen.expected_s, UTC),
        earliest_at=datetime.fromtimestamp(seen.earliest_s, UTC),
        latest_at=datetime.fromtimestamp(seen.latest_s, UTC),
        reserved=tuple(at.views[place.node].node.name for place in outcome.reserved),
    )


def _admit(ask: Ask, place: Place, views: Sequence[NodeView]) -> Admit:
    view = views[place.node]
    readable = compute_headroom(view.node, view.leases, view.reading).gpus
    sharing = Sharing.WHOLE if ask.gpu.whole else Sharing.SHARED
    grants = tuple(
        GpuGrant(
            uuid=readable[at].uuid,
            memory_bytes=readable[at].whole_bytes if ask.gpu.whole else ask.gpu.memory_bytes,
            sharing=sharing,
            utilisation_frac=ask.gpu.load,
        )
        for at in place.gpus
    )
    return Admit(view.node.name, grants)
