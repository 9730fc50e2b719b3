"""The simulated clock: jobs arrive, a policy decides, jobs end."""

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.policy.board import Board
from headway.policy.decide import Outcome
from headway.policy.fit import Ask
from headway.policy.promise import PoolTotals
from headway.policy.settings import PolicySettings
from headway.replay.cluster import Cluster, Job, Shape, check_size, to_job
from headway.replay.history import History
from headway.replay.ours import Headway
from headway.replay.reference_policies import Conservative, Easy, Fifo
from headway.replay.said_starts import SaidStarts
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob

_REPORT_EVERY = 250


class PolicyName(enum.StrEnum):
    """The policies that a replay knows."""

    FIFO = "fifo"
    EASY = "easy"
    CONSERVATIVE = "conservative"
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


_POLICIES: dict[PolicyName, Callable[[PolicySettings, PoolTotals], Policy]] = {
    PolicyName.FIFO: Fifo,
    PolicyName.EASY: Easy,
    PolicyName.CONSERVATIVE: Conservative,
    PolicyName.HEADWAY: Headway.empty,
}


def simulate(
    rows: Sequence[TraceJob],
    shape: Shape,
    policy: PolicyName,
    sharing: GpuSharing,
    estimates: Estimates = Estimates.LEARNED,
    *,
    settings: PolicySettings,
    report: Callable[[int], None] = lambda _ended: None,
    said: SaidStarts | None = None,
) -> Result:
    """Replay *rows* on an empty cluster of *shape* until every job has ended.

    Decisions are made when jobs end and when one arrives that has room: one
    that does not fit now changes nothing for the others.

    Args:
        rows: Jobs in the order of submission.
        shape: The cluster.
        policy: Who decides.
        sharing: Who may be together on a GPU.
        estimates: What the policy is told of runtimes when a job is submitted.
        settings: The policy's knobs.
        said: Says when jobs will start, where headway decides.
        report: Called now and then with the number of jobs that have ended.

    Raises:
        InvalidInput: The cluster could never hold one of the jobs.
    """
    for row in rows:
        check_size(row, shape)
    limit = settings.utilisation_limit
    history = History(estimates)
    jobs: list[Job] = []
    line = _POLICIES[policy](settings, shape.totals)
    cluster = Cluster(shape.board(limit))
    done = 0
    while done < len(rows):
        arrival_s = rows[len(jobs)].submit_s if len(jobs) < len(rows) else math.inf
        now_s = min(arrival_s, cluster.next_end_s())
        cluster.advance(now_s)
        over = cluster.ended()
        for job in over:
            line.ended(job.ask, now_s)
            history.ended(job.trace, now_s - job.start_s)
            if said is not None:
                said.ended(job, now_s)
        look, known = bool(over), len(jobs)
        while len(jobs) < len(rows) and rows[len(jobs)].submit_s <= now_s:
            row = rows[len(jobs)]
            job = to_job(
                row,
                len(jobs),
                history.told(row),
                shape=shape,
                sharing=sharing,
                utilisation_limit=limit,
            )
            jobs.append(job)
            line.add(job.ask)
            look = look or cluster.board.has_room(job.ask)
        if look:
            _decide(line, cluster, jobs)
        if said is not None and isinstance(line, Headway):
            said.joined(jobs[known:], jobs, line, cluster)
        done += len(over)
        if over and done // _REPORT_EVERY != (done - len(over)) // _REPORT_EVERY:
            report(done)
    report(done)
    return Result(tuple(jobs), cluster.busy_gpu_s, shape)


def _decide(line: Policy, cluster: Cluster, jobs: Sequence[Job]) -> None:
    """Who starts now."""
    for outcome in line.decide(cluster.board, cluster.now_s):
        job = jobs[int(outcome.ask.run_id)]
        job.ask = outcome.ask
        cluster.started(job, outcome.start)
