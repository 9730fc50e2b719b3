"""The plan of a pool: the same on every worker that computes it from the same rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headway.errors import shown
from headway.model.lease import Admit, Demand, GpuGrant, Lease, Sharing, Wait
from headway.model.node import GpuReading, Node, NodeReading
from headway.model.run import Span
from headway.policy.board import Ask, Board, NodeRooms, Place
from headway.policy.decide import Held, decide
from headway.policy.headroom import compute_headroom
from headway.policy.order import bands, due_first
from headway.policy.outlook import Doubt, Expected, Outlook, around
from headway.policy.preempt import Runner
from headway.policy.reasons import explain
from headway.policy.room import NOTHING, Need, Occupant, Room
from headway.policy.settings import PolicySettings

_END_OF_TIME_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""No date lies much beyond."""


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
    lasts: Span | None = None
    """How long it is expected to run, for what people are told; None when nothing is known."""
    name: str = ""
    """What people call it."""


@dataclass(frozen=True, slots=True)
class RunningRun:
    """One run that holds leases of the pool."""

    run_id: str
    team: str = ""
    priority: int = 0
    left: Span | None = None
    """How long it goes on from now, by its log or what is known; None when nothing is."""
    name: str = ""
    """What people call it."""
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
    said_at: datetime
    """The time of the plan."""
    expected_at: datetime | None = None
    """When it is expected to start; None when that cannot be said."""
    earliest_at: datetime | None = None
    """Ends of the 80 % interval."""
    latest_at: datetime | None = None
    unknown: str = ""
    """Why nobody can say when it starts, where it is for a run of unknown length."""
    reserved: tuple[str, ...] = ()
    """Nodes of which room is held back for it; empty without a reservation."""

    def sentence(self) -> str:
        """Why it waits, its place, and when it may start: the state's message on its page."""
        said = f"{self.wait.reason}; number {self.position} in line"
        if self.unknown:
            return f"{said}, start not known: {self.unknown}"
        if self.expected_at is None:
            return said
        when = around(self.earliest_at, self.expected_at, self.latest_at, self.said_at)
        return f"{said}, expected to start {when} UTC"


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
    known = {run.run_id: run for run in waiting}
    ahead = _outlook(views, running, holders, now_s, settings)
    entries: list[Start | Stay] = []
    preempts: list[Preempt] = []
    for position, outcome in enumerate(outcomes, start=1):
        run = known[outcome.ask.run_id]
        expected = ahead.add(outcome, run.lasts, run.name or run.run_id[:8], board)
        if outcome.start:
            admits = tuple(_admit(outcome.ask, place, views) for place in outcome.start)
            entries.append(Start(run.run_id, position, admits))
        else:
            wait = explain(outcome, board, held, settings=settings)
            reserved = tuple(views[place.node].node.name for place in outcome.reserved)
            entries.append(_stay(Stay(run.run_id, position, wait, now), expected, reserved))
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


def _outlook(
    views: Sequence[NodeView],
    running: Sequence[RunningRun],
    holders: Sequence[_Holder],
    now_s: float,
    settings: PolicySettings,
) -> Outlook:
    """The pool as it is expected to go on; runs of unknown length never end there."""
    by_id = {run.run_id: run for run in running}
    held = [(view.node.name, lease.run_id) for view in views for lease in view.leases]
    ends = {
        run_id: now_s + run.left.median_s
        if (run := by_id.get(run_id)) is not None and run.left is not None
        else math.inf
        for _, run_id in held
    }
    board = Board([_rooms(view, settings, ends) for view in views])
    board.look_anew(now_s, settings.overrun_frac)
    team_ends: dict[str, float] = {}
    for one in holders:
        team, end_s = one.run.team, ends.get(one.run.run_id, math.inf)
        team_ends[team] = min(team_ends.get(team, math.inf), end_s)
    return Outlook(
        board,
        now_s,
        doubts={
            now_s + run.left.median_s: Doubt.of(run.left) for run in running if run.left is not None
        },
        unknown={
            node: (run.name if (run := by_id.get(run_id)) is not None else "") or run_id[:8]
            for node, run_id in reversed(held)
            if math.isinf(ends[run_id])
        },
        team_ends=team_ends,
    )


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


def _stay(stay: Stay, expected: Expected, reserved: tuple[str, ...]) -> Stay:
    """*stay* with when it is expected to end."""
    if expected.unknown:
        name = shown(expected.unknown, 63)[1:-1]
        return replace(stay, unknown=f"nothing is known of how long {name} runs", reserved=reserved)
    if math.isinf(expected.expected_s):  # nobody can say when, of a disk that is full for one
        return replace(stay, reserved=reserved)
    return replace(
        stay,
        expected_at=_moment(expected.expected_s),
        earliest_at=_moment(expected.earliest_s),
        latest_at=_moment(expected.latest_s),
        reserved=reserved,
    )


def _moment(time_s: float) -> datetime:
    return datetime.fromtimestamp(min(time_s, _END_OF_TIME_S), UTC)


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
