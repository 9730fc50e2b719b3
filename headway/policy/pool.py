"""The nodes of a pool and who runs there, as the boards that one plan is made on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headway.model.lease import Admit, GpuGrant, Headroom, Lease, Sharing
from headway.model.node import GpuReading, Node, NodeReading
from headway.model.run import Span
from headway.policy.admission import admit
from headway.policy.board import Board, Place
from headway.policy.fit import Ask, NodeRooms, WaitingRun
from headway.policy.headroom import compute_headroom
from headway.policy.outlook import Outlook, Variance
from headway.policy.preempt import Runner
from headway.policy.room import NOTHING, Need, Occupant, Room
from headway.policy.settings import PolicySettings


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of the pool as the ledger has it."""

    node: Node
    leases: tuple[Lease, ...] = ()
    """Every unreleased lease of the node, expired ones too."""
    reading: NodeReading | None = None
    """The last one; None to go by the ledger alone."""


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


class Pool:
    """The nodes with their headroom, which is computed once, and the running runs by id."""

    def __init__(
        self, nodes: Sequence[NodeView], running: Sequence[RunningRun], settings: PolicySettings
    ) -> None:
        """The pool of *nodes*, in any order, and of *running*, which hold leases there."""
        views = sorted(nodes, key=lambda view: view.node.name)
        self._views = _as_gangs(views, running)
        self._running = {run.run_id: run for run in running}
        self._settings = settings
        self._headrooms: list[Headroom] = [
            compute_headroom(view.node, view.leases, view.reading) for view in self._views
        ]

    def name(self, place: Place) -> str:
        """The node of *place*."""
        return self._views[place.node].node.name

    def admit(self, run: WaitingRun, place: Place) -> Admit:
        """What *run* is granted at *place*."""
        headroom = self._headrooms[place.node]
        return admit(run.demand, headroom.node, [headroom.gpus[at] for at in place.gpus])

    def board(self, ends: Mapping[str, float] | None = None) -> Board:
        """Headroom as it is now, and who leaves when: by *ends* by run, else by the leases."""
        return Board(
            [
                self._rooms(view, headroom, ends or {})
                for view, headroom in zip(self._views, self._headrooms, strict=True)
            ]
        )

    def _rooms(self, view: NodeView, headroom: Headroom, ends: Mapping[str, float]) -> NodeRooms:
        rooms = NodeRooms.of(headroom, self._settings.utilisation_limit)
        capacity, reserve = view.node.capacity, view.node.reserve
        cpus = capacity.cpus - reserve.cpus
        rooms.host = Room(
            capacity.host_memory_bytes - reserve.host_memory_bytes,
            cpus,
            headroom.host_memory_bytes,
            cpus - headroom.cpus,
        )
        gpus = {gpu.uuid: room for gpu, room in zip(headroom.gpus, rooms.gpus, strict=True)}
        for room in rooms.gpus:
            room.occupants.clear()
        for lease in view.leases:
            started_s, end_s = self._times(lease, ends)
            who = Occupant(end_s, lease.run_id, started_s, end_s, _host_need(lease))
            rooms.host.occupants.append(who)
            for grant in lease.gpus:
                if grant.uuid in gpus:
                    gpus[grant.uuid].occupants.append(who._replace(need=_grant_need(grant)))
        for room in (rooms.host, *rooms.gpus):
            room.occupants.sort()
        return rooms

    def _times(self, lease: Lease, ends: Mapping[str, float]) -> tuple[float, float]:
        started_s = lease.granted_at.timestamp()
        if lease.run_id in ends:
            return started_s, ends[lease.run_id]
        if lease.predicted_end_at is None:
            return started_s, started_s + self._settings.unknown_runtime_s
        return started_s, lease.predicted_end_at.timestamp()

    def runners(self) -> list[Runner]:
        """Each running run with what it holds and where, by id."""
        leases: dict[str, list[tuple[int, Lease]]] = {}
        for at, view in enumerate(self._views):
            for lease in view.leases:
                leases.setdefault(lease.run_id, []).append((at, lease))
        return [
            self._runner(run, leases[run_id])
            for run_id, run in sorted(self._running.items())
            if run_id in leases
        ]

    def _runner(self, run: RunningRun, leases: Sequence[tuple[int, Lease]]) -> Runner:
        first = leases[0][1]
        started_s, end_s = self._times(first, {})
        ask = Ask(
            run_id=run.run_id,
            submitted_s=started_s,
            gpus=max(len(lease.gpus) for _, lease in leases),
            gpu=_grant_need(first.gpus[0]) if first.gpus else NOTHING,
            median_s=end_s - started_s,
            high_s=end_s - started_s,
            host=_host_need(first),
            nodes=len(leases),
            ports=frozenset(first.ports),
            team=run.team,
            priority=run.priority,
        )
        places = tuple(Place(at, self._positions(at, lease)) for at, lease in leases)
        return Runner(ask, places, started_s, run.stopping, run.preemptible)

    def _positions(self, node: int, lease: Lease) -> tuple[int, ...]:
        """Positions of the lease's GPUs among those that can be read now."""
        uuids = {grant.uuid for grant in lease.gpus}
        gpus = self._headrooms[node].gpus
        return tuple(at for at, gpu in enumerate(gpus) if gpu.uuid in uuids)

    def outlook(self, runners: Sequence[Runner], now_s: float) -> Outlook:
        """The pool as it is expected to go on; runs of unknown length never end there."""
        held = [(view.node.name, lease.run_id) for view in self._views for lease in view.leases]
        left = {run_id: run.left for run_id, run in self._running.items() if run.left is not None}
        ends = {
            run_id: now_s + left[run_id].median_s if run_id in left else math.inf
            for _, run_id in held
        }
        board = self.board(ends)
        board.refresh(now_s, self._settings.overrun_frac)
        team_ends: dict[str, float] = {}
        for one in runners:
            team, end_s = one.ask.team, ends.get(one.ask.run_id, math.inf)
            team_ends[team] = min(team_ends.get(team, math.inf), end_s)
        return Outlook(
            board,
            now_s,
            variances={now_s + span.median_s: Variance.of(span) for span in left.values()},
            unknown={
                node: (run.name if (run := self._running.get(run_id)) else "") or run_id[:8]
                for node, run_id in reversed(held)
                if math.isinf(ends[run_id])
            },
            team_ends=team_ends,
        )


def _host_need(lease: Lease) -> Need:
    return Need(lease.host_memory_bytes, lease.cpus)


def _grant_need(grant: GpuGrant) -> Need:
    return Need(grant.memory_bytes, grant.utilisation_frac, grant.sharing is Sharing.WHOLE)


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
        processes = (
            replace(each, run_id=gang_of.get(each.run_id, each.run_id)) for each in gpu.processes
        )
        return replace(gpu, processes=tuple(processes))

    return replace(
        reading,
        gpus=reading.gpus and tuple(of_gang(gpu) for gpu in reading.gpus),
        run_host_bytes={gang_of.get(run, run): n for run, n in reading.run_host_bytes.items()},
    )
