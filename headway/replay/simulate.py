"""The simulated clock: jobs arrive, a policy decides, jobs end."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.policy.board import Board
from headway.policy.decide import Outcome
from headway.policy.fit import Ask
from headway.policy.settings import PolicySettings
from headway.replay.cluster import Cluster, Job, Shape, to_job
from headway.replay.ours import Headway
from headway.replay.reference_policies import Easy, Fifo
from headway.replay.trace_jobs import GpuSharing, TraceJob

_REPORT_EVERY = 250


class PolicyName(enum.StrEnum):
    """The policies that a replay knows."""

    FIFO = "fifo"
    EASY = "easy"
    HEADWAY = "headway"


class Policy(Protocol):
    """What decides in a replay."""

    def add(self, ask: Ask) -> None:
        """*ask* joins the queue."""
        ...

    def ended(self, ask: Ask, now_s: float) -> None:
        """The run of *ask* has ended and left the board."""
        ...

    def decide(self, board: Board, now_s: float) -> list[Outcome]:
        """Who starts now; they are on the board and out of the queue."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """A replayed trace."""

    jobs: tuple[Job, ...]
    """In the order of submission, with their starts and ends."""
    busy_gpu_s: float
    shape: Shape


_POLICIES: dict[PolicyName, Callable[[PolicySettings], Policy]] = {
    PolicyName.FIFO: Fifo,
    PolicyName.EASY: Easy,
    PolicyName.HEADWAY: Headway,
}


def simulate(
    rows: Sequence[TraceJob],
    shape: Shape,
    policy: PolicyName,
    sharing: GpuSharing,
    *,
    settings: PolicySettings,
    report: Callable[[int], None] = lambda _ended: None,
) -> Result:
    """Replay *rows* on an empty cluster of *shape* until every job has ended.

    Decisions are made when jobs end and when one arrives that has room: one
    that does not fit now changes nothing for the others.

    Args:
        rows: Jobs in the order of submission.
        shape: The cluster.
        policy: Who decides.
        sharing: Who may be together on a GPU.
        settings: The policy's knobs.
        report: Called now and then with the number of jobs that have ended.

    Raises:
        InvalidInput: The cluster could never hold one of the jobs.
    """
    limit = settings.utilisation_limit
    jobs = [to_job(row, at, shape, sharing, limit) for at, row in enumerate(rows)]
    by_run = {job.ask.run_id: job for job in jobs}
    line = _POLICIES[policy](settings)
    cluster = Cluster(shape.board(limit))
    arrived = done = 0
    while done < len(jobs):
        arrival_s = jobs[arrived].trace.submit_s if arrived < len(jobs) else float("inf")
        now_s = min(arrival_s, cluster.next_end_s())
        cluster.advance(now_s)
        over = cluster.ended()
        for job in over:
            line.ended(job.ask, now_s)
        look = bool(over)
        while arrived < len(jobs) and jobs[arrived].trace.submit_s <= now_s:
            line.add(jobs[arrived].ask)
            look = look or cluster.board.has_room(jobs[arrived].ask)
            arrived += 1
        if look:
            for outcome in line.decide(cluster.board, now_s):
                cluster.started(by_run[outcome.ask.run_id], outcome.start)
        done += len(over)
        if over and done // _REPORT_EVERY != (done - len(over)) // _REPORT_EVERY:
            report(done)
    report(done)
    return Result(tuple(jobs), cluster.busy_gpu_s, shape)
