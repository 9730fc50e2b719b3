"""The simulated machines: who runs where, and how fast jobs that share a GPU go."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headway.errors import InvalidInput
from headway.model.node import Node
from headway.policy.board import Board, Place
from headway.policy.fit import Ask, Headroom
from headway.policy.headroom import compute_headroom
from headway.policy.lending import LEND_AFTER_S, kept_bytes, likely_bytes
from headway.policy.promise import PoolTotals
from headway.policy.room import NOTHING, Need, Room
from headway.replay.history import Told
from headway.replay.pair_speeds import shared_speed
from headway.replay.trace_jobs import GpuSharing, TraceJob
from headway.units import format_size


@dataclass(frozen=True, slots=True)
class Shape:
    """A cluster of equal nodes."""

    nodes: int
    gpus: int
    """On each node."""
    gpu_memory_bytes: int
    host_memory_bytes: int = 0
    """Of each node; 0 leaves host memory out."""

    @property
    def totals(self) -> PoolTotals:
        """What all nodes have together."""
        return PoolTotals(gpus=self.nodes * self.gpus)

    def board(self, utilisation_limit: float) -> Board:
        """An empty board of this shape."""
        memory, host = self.gpu_memory_bytes, self.host_memory_bytes
        return _lending(
            Board(
                [
                    Headroom(
                        f"node-{at}",
                        Room(host, math.inf, host, is_gpu=False),
                        [Room(memory, utilisation_limit, memory) for _ in range(self.gpus)],
                    )
                    for at in range(self.nodes)
                ]
            )
        )


@dataclass(frozen=True, slots=True)
class Machines(Shape):
    """The nodes of a site as they are."""

    each: tuple[Node, ...] = ()

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> "Machines":
        """A cluster of *nodes*."""
        gpus = [gpu for node in nodes for gpu in node.capacity.gpus]
        return cls(
            nodes=len(nodes),
            gpus=max((len(node.capacity.gpus) for node in nodes), default=0),
            gpu_memory_bytes=max((gpu.memory_bytes - gpu.reserve_bytes for gpu in gpus), default=0),
            each=tuple(nodes),
        )

    @property
    def totals(self) -> PoolTotals:
        """What all nodes have together; never 0."""
        return PoolTotals(
            sum(len(node.capacity.gpus) for node in self.each) or 1.0,
            sum(node.capacity.cpus for node in self.each) or 1.0,
            sum(node.capacity.host_memory_bytes for node in self.each) or 1.0,
        )

    def board(self, utilisation_limit: float) -> Board:
        """An empty board of these nodes."""
        return _lending(
            Board(
                [
                    compute_headroom(one, (), utilisation_limit=utilisation_limit)
                    for one in self.each
                ]
            )
        )


def _lending(board: Board) -> Board:
    """*board*, empty, with what its nodes may lend."""
    for node in board.nodes:
        node.lendable_bytes = node.host.whole_bytes - _kept(node)
    return board


def _kept(node: Headroom) -> int:
    return 2 * kept_bytes(node.host.whole_bytes)


@dataclass(slots=True, eq=False)
class Job:
    """One job of a trace on its way through the cluster."""

    trace: TraceJob
    ask: Ask
    start_s: float = 0.0
    end_s: float = 0.0
    places: tuple[Place, ...] = ()
    left_s: float = 0.0
    """Work left, in seconds alone."""
    speed: float = 1.0
    since_s: float = 0.0
    """When `left_s` was true."""
    turn: int = 0
    """Number of its latest end event; earlier ones do not count."""
    idle_bytes: int = 0
    """Of its host memory, what may be lent since it is known what it uses."""
    stops: int = 0
    """So often it had to leave memory that was lent to it, and begin anew."""

    @property
    def used_bytes(self) -> int:
        """Host memory that it uses, from its start on."""
        granted = self.ask.host.memory_bytes
        return min(self.trace.host_peak_bytes or granted, granted)


def check_size(row: TraceJob, shape: Shape) -> None:
    """Raise `InvalidInput` for a job that the cluster could never hold."""
    if row.gpus > shape.nodes * shape.gpus:
        raise InvalidInput(
            "gpus",
            row.gpus,
            f"job {row.job_id} needs more than the {shape.nodes * shape.gpus} GPUs of the cluster; "
            "give more --nodes or --gpus",
        )
    if row.gpu_memory_bytes > shape.gpu_memory_bytes:
        raise InvalidInput(
            "gpu_memory_bytes",
            format_size(row.gpu_memory_bytes),
            f"job {row.job_id} needs more than a GPU of {format_size(shape.gpu_memory_bytes)}; "
            "give more --gpu-memory",
        )
    if shape.host_memory_bytes and row.host_memory_bytes > shape.host_memory_bytes:
        raise InvalidInput(
            "host_memory_bytes",
            format_size(row.host_memory_bytes),
            f"job {row.job_id} needs more than a node's {format_size(shape.host_memory_bytes)}; "
            "give more --host-memory",
        )


def to_job(
    row: TraceJob,
    number: int,
    told: Told,
    *,
    shape: Shape,
    sharing: GpuSharing,
    utilisation_limit: float,
    lends: bool = True,
) -> Job:
    """*row* as a job that asks for GPUs of a cluster of *shape*, by what is *told* of it.

    More GPUs than a node has make a gang. Only jobs of one GPU share.
    """
    nodes = max(-(-row.gpus // shape.gpus), 1) if row.gpus else 1
    if not row.gpus:
        need = NOTHING
    elif sharing is GpuSharing.WHOLE or row.gpus > 1 or row.whole:
        need = Need(shape.gpu_memory_bytes, 0.0, whole=True)
    else:
        by_load = sharing is GpuSharing.HEADWAY
        load = min(told.gpu_util_frac, utilisation_limit) if by_load else 0.0
        need = Need(row.gpu_memory_bytes, load)
    ask = Ask(
        # Numbered in the order of submission, which breaks ties.
        run_id=f"{number:09d}",
        submitted_s=row.submit_s,
        gpus=-(-row.gpus // nodes),
        gpu=need,
        median_s=told.median_s,
        high_s=told.high_s,
        limit_s=row.limit_s,
        host=Need(row.host_memory_bytes, row.cpus),
        nodes=nodes,
        team=row.team,
        user=row.user,
        may_borrow=lends and row.preemptible and nodes == 1,
    )
    return Job(row, ask, left_s=row.duration_s)


@dataclass(slots=True)
class Cluster:
    """The running jobs, their ends to come, and the GPU-time used."""

    board: Board
    running: dict[tuple[int, int], list[Job]] = field(default_factory=dict)
    """By node and GPU."""
    ends: list[tuple[float, str, int, Job]] = field(default_factory=list)
    """A heap of end, run, turn and job."""
    busy_gpu_s: float = 0.0
    """GPU-seconds in which at least one job was on the GPU."""
    used_gpus: int = 0
    now_s: float = 0.0
    hosts: dict[int, list[Job]] = field(default_factory=dict)
    """Who runs on each node and has host memory there."""
    unknown: list[tuple[float, str, Job]] = field(default_factory=list)
    """A heap of those of whom it is not known yet what they use, by when it will be."""

    def next_known_s(self) -> float:
        """When it is next known of a job what it uses of its host memory; infinite if of none."""
        return self.unknown[0][0] if self.unknown else math.inf

    def known(self) -> bool:
        """Lend what jobs leave idle of which that is known by now; whether there are any."""
        found = False
        while self.next_known_s() <= self.now_s:
            known_s, _, job = heapq.heappop(self.unknown)
            again = job.start_s + LEND_AFTER_S != known_s
            if again or job.end_s or not job.places or job.ask.lent:
                continue
            granted = job.ask.host.memory_bytes
            job.idle_bytes, found = granted - likely_bytes(granted, job.used_bytes), True
            self._lend(job, job.idle_bytes)
        return found

    def _lend(self, job: Job, size_bytes: int) -> None:
        for place in job.places:
            self.board.nodes[place.node].lendable_bytes += size_bytes

    def stopped(self) -> list[Job]:
        """Take off who has borrowed where those who were promised the memory need it now.

        They lose what they have done, as one without a checkpoint does.
        """
        gone: list[Job] = []
        for at, jobs in self.hosts.items():
            node = self.board.nodes[at]
            borrowers = sorted((job for job in jobs if job.ask.lent), key=lambda job: job.start_s)
            left_bytes = node.host.whole_bytes - sum(job.used_bytes for job in jobs)
            while borrowers and left_bytes < _kept(node):
                job = borrowers.pop()
                left_bytes += job.used_bytes
                gone.append(job)
        for job in gone:
            self._leave(job)
            job.places = ()
            job.ask = replace(job.ask, lent=False)
            job.left_s, job.speed, job.stops = job.trace.duration_s, 1.0, job.stops + 1
        return gone

    def next_end_s(self) -> float:
        """When the next job ends; infinite when none runs."""
        while self.ends and self.ends[0][2] != self.ends[0][3].turn:
            heapq.heappop(self.ends)
        return self.ends[0][0] if self.ends else float("inf")

    def advance(self, now_s: float) -> None:
        """Let time pass until *now_s*."""
        self.busy_gpu_s += self.used_gpus * (now_s - self.now_s)
        self.now_s = now_s

    def started(self, job: Job, places: Sequence[Place]) -> None:
        """*job* starts now at *places*; the policy has entered it on the board."""
        job.start_s = job.since_s = self.now_s
        job.places = tuple(places)
        heapq.heappush(self.ends, (self.now_s + job.left_s, job.ask.run_id, job.turn, job))
        if job.ask.host.memory_bytes:
            known_s = self.now_s + LEND_AFTER_S
            heapq.heappush(self.unknown, (known_s, job.ask.run_id, job))
        for place in places:
            if job.ask.host.memory_bytes:
                self.hosts.setdefault(place.node, []).append(job)
            for gpu in place.gpus:
                there = self.running.setdefault((place.node, gpu), [])
                self.used_gpus += not there
                there.append(job)
                self._retime(there)

    def ended(self) -> list[Job]:
        """Take the jobs that end now off the cluster and the board."""
        over: list[Job] = []
        while self.next_end_s() <= self.now_s:
            job = heapq.heappop(self.ends)[3]
            job.end_s = self.now_s
            self._leave(job)
            over.append(job)
        return over

    def _leave(self, job: Job) -> None:
        """Take *job* off its GPUs and the board."""
        job.turn += 1
        self.board.leave(job.ask, job.places)
        self._lend(job, -job.idle_bytes)
        for place in job.places:
            if job.ask.host.memory_bytes:
                self.hosts[place.node].remove(job)
            for gpu in place.gpus:
                there = self.running[place.node, gpu]
                there.remove(job)
                self.used_gpus -= not there
                self._retime(there)
        job.idle_bytes = 0

    def _retime(self, there: list[Job]) -> None:
        """The jobs on one GPU go at a new speed from now on."""
        for job in there:
            others = [each.trace.gpu_util_frac for each in there if each is not job]
            speed = shared_speed(job.trace.gpu_util_frac, others)
            if job.speed == speed:
                continue
            job.left_s -= (self.now_s - job.since_s) * job.speed
            job.since_s, job.speed = self.now_s, speed
            job.turn += 1
            end_s = self.now_s + max(job.left_s, 0.0) / speed
            heapq.heappush(self.ends, (end_s, job.ask.run_id, job.turn, job))
