"""The nodes of a pool and who runs there, as the boards that one plan is made on."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.model.lease import Lease
from headway.model.node import GpuReading, Node, NodeReading
from headway.model.run import Span
from headway.policy.board import Board
from headway.policy.fit import Ask
from headway.policy.headroom import compute_headroom, grant_need
from headway.policy.outlook import Outlook, Unknown, Variance
from headway.policy.preempt import Runner
from headway.policy.room import NOTHING, Need
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
    user: str = ""
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
    """The nodes and the running runs, for one plan."""

    def __init__(
        self, nodes: Sequence[NodeView], running: Sequence[RunningRun], settings: PolicySettings
    ) -> None:
        """The pool of *nodes*, in any order, and of *running*, which hold leases there."""
        views = sorted(nodes, key=lambda view: view.node.name)
        self._views = _as_gangs(views, running)
        self._running = {run.run_id: run for run in running}
        self._settings = settings

    def board(self, end_s: Callable[[Lease], float] | None = None) -> Board:
        """Headroom as it is now, and who leaves when: by *end_s*, else by upper quantiles."""
        return Board(
            [
                compute_headroom(
                    view.node,
                    view.leases,
                    view.reading,
                    utilisation_limit=self._settings.utilisation_limit,
                    end_s=end_s or self._end_s,
                )
                for view in self._views
            ]
        )

    def _end_s(self, lease: Lease) -> float:
        if lease.predicted_end_at is None:
            return lease.granted_at.timestamp() + self._settings.unknown_runtime_s
        return lease.predicted_end_at.timestamp()

    def _unknown(self, run_id: str) -> Unknown:
        run = self._running.get(run_id)
        if run is None:
            return Unknown(run_id[:8], "")
        return Unknown(run.name or run_id[:8], run.team)

    def runners(self, board: Board) -> list[Runner]:
        """Each running run with what it holds and where on *board*, by id."""
        leases: dict[str, list[tuple[int, Lease]]] = {}
        for at, view in enumerate(self._views):
            for lease in view.leases:
                leases.setdefault(lease.run_id, []).append((at, lease))
        return [
            self._runner(run, leases[run_id], board)
            for run_id, run in sorted(self._running.items())
            if run_id in leases
        ]

    def _runner(self, run: RunningRun, leases: Sequence[tuple[int, Lease]], board: Board) -> Runner:
        first = leases[0][1]
        started_s = first.granted_at.timestamp()
        lasts_s = self._end_s(first) - started_s
        ask = Ask(
            run_id=run.run_id,
            submitted_s=started_s,
            gpus=max(len(lease.gpus) for _, lease in leases),
            gpu=grant_need(first.gpus[0]) if first.gpus else NOTHING,
            median_s=lasts_s,
            high_s=lasts_s,
            host=Need(first.host_memory_bytes, first.cpus),
            nodes=len(leases),
            ports=frozenset(first.ports),
            team=run.team,
            user=run.user,
            priority=run.priority,
        )
        places = tuple(board.place_of(node, lease) for node, lease in leases)
        return Runner(ask, places, started_s, run.stopping, run.preemptible)

    def outlook(self, runners: Sequence[Runner], now_s: float) -> Outlook:
        """The pool as it is expected to go on; runs of unknown length never end there."""
        held = [(view.node.name, lease.run_id) for view in self._views for lease in view.leases]
        left = {run_id: run.left for run_id, run in self._running.items() if run.left is not None}
        ends = {
            run_id: now_s + left[run_id].median_s if run_id in left else math.inf
            for _, run_id in held
        }
        board = self.board(lambda lease: ends[lease.run_id])
        board.refresh(now_s, self._settings.overrun_frac)
        team_ends: dict[tuple[str, str], float] = {}
        for one in runners:
            team, end_s = one.ask.team, ends.get(one.ask.run_id, math.inf)
            for key in {(team, ""), (team, one.ask.user)}:
                team_ends[key] = min(team_ends.get(key, math.inf), end_s)
        return Outlook(
            board,
            now_s,
            variances={now_s + span.median_s: Variance.of(span) for span in left.values()},
            unknown={
                run_id: self._unknown(run_id) for _, run_id in held if math.isinf(ends[run_id])
            },
            team_ends=team_ends,
        )


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
