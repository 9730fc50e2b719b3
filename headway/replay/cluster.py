"""The simulated machines: who runs where, and how fast jobs that share a GPU go."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.errors import InvalidInput
from headway.policy.board import Board, Place
from headway.policy.fit import Ask, Headroom
from headway.policy.promise import PoolTotals
from headway.policy.room import Need, Room
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

    @property
    def totals(self) -> PoolTotals:
        """What all nodes have together."""
        return PoolTotals(gpus=self.nodes * self.gpus)

    def board(self, utilisation_limit: float) -> Board:
        """An empty board of this shape; host memory and CPUs are left out."""
        memory = self.gpu_memory_bytes
        return Board(
            [
                Headroom(
                    f"node-{at}",
                    Room(0, math.inf, 0, is_gpu=False),
                    [Room(memory, utilisation_limit, memory) for _ in range(self.gpus)],
                )
                for at in range(self.nodes)
            ]
        )


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


def to_job(
    row: TraceJob,
    number: int,
    told: Told,
    *,
    shape: Shape,
    sharing: GpuSharing,
    utilisation_limit: float,
) -> Job:
    """*row* as a job that asks for GPUs of a cluster of *shape*, by what is *told* of it.

    More GPUs than a node has make a gang. Only jobs of one GPU share.
    """
    nodes = -(-row.gpus // shape.gpus)
    if sharing is GpuSharing.WHOLE or row.gpus > 1:
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
        nodes=nodes,
        team=row.team,
        user=row.user,
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
        for place in places:
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
        for place in job.places:
            for gpu in place.gpus:
                there = self.running[place.node, gpu]
                there.remove(job)
                self.used_gpus -= not there
                self._retime(there)

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
