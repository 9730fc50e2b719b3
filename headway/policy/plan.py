"""The plan of a pool: the same on every worker that computes it from the same rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from headway.errors import shown
from headway.model.lease import Admit, Wait
from headway.model.run import Span
from headway.policy.admission import admit
from headway.policy.decide import Held, decide
from headway.policy.fit import WaitingRun, moment
from headway.policy.outlook import Expected, around, clock, promise_text
from headway.policy.pool import NodeView, Pool, RunningRun
from headway.policy.reasons import explain
from headway.policy.settings import PolicySettings


@dataclass(frozen=True, slots=True)
class Start:
    """This run starts now."""

    run: WaitingRun
    position: int
    admits: tuple[Admit, ...]
    """One for each node; all leases of a gang are to be had in one transaction."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run_id


@dataclass(frozen=True, slots=True)
class Stay:
    """This run waits."""

    run_id: str
    position: int
    """1 for the first of the queue."""
    wait: Wait
    """What is scarce, in words and numbers."""
    said_at: datetime
    """The time of the plan."""
    expected_at: datetime | None = None
    """When it is expected to start; None when that cannot be said."""
    earliest_at: datetime | None = None
    """Ends of the 80 % interval."""
    latest_at: datetime | None = None
    planned: Span | None = None
    """How long it waits as the queue was played; the times above go by what was learnt of that."""
    planned_at: datetime | None = None
    """From when on that counts; None where the queue was not played for it."""
    first_said_latest_at: datetime | None = None
    """The latest start that was said at first, where it is expected later than that by now."""
    unknown: str = ""
    """Why nobody can say when it starts, where it is for a run of unknown length."""
    reserved: tuple[str, ...] = ()
    """Nodes of which room is held back for it; empty without a reservation."""
    promised_at: datetime | None = None
    """By when it was promised to start; None until its quota lets it start."""

    def sentence(self) -> str:
        """Why it waits, its place, and when it may start: the state's message on its page."""
        said = f"{self.wait.reason}; number {self.position} in the queue"
        if self.unknown:
            said = f"{said}, start not known: {self.unknown}"
        elif self.expected_at is not None:
            when = around(self.earliest_at, self.expected_at, self.latest_at, self.said_at)
            said = f"{said}, expected to start {when} UTC"
            if self.first_said_latest_at is not None:
                first = clock(self.first_said_latest_at, self.said_at)
                said = f"{said}, which is later than was said at first: by {first}"
        return said + promise_text(self.promised_at, self.said_at)


@dataclass(frozen=True, slots=True)
class Preempt:
    """This running run is to be stopped, with its grace time, for another."""

    run_id: str
    for_run_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of the first `window` runs of the queue."""

    entries: tuple[Start | Stay, ...] = ()
    """In the order of the queue."""
    preempts: tuple[Preempt, ...] = ()
    behind: tuple[Stay, ...] = ()
    """Runs of the queue beyond these whose start can be told all the same."""

    def entry(self, run_id: str) -> Start | Stay | None:
        """What becomes of one run; None where nothing can be told of it."""
        found = (each for each in (*self.entries, *self.behind) if each.run_id == run_id)
        return next(found, None)


def plan(
    nodes: Sequence[NodeView],
    front: Sequence[WaitingRun],
    running: Sequence[RunningRun],
    *,
    now: datetime,
    settings: PolicySettings,
) -> Plan:
    """Plan for one pool.

    It depends on the values only, not on the order of nodes and running runs.

    Args:
        nodes: Every node of the pool.
        front: The first runs of the queue, in its order: see `Queue.front`.
        running: The runs that the leases belong to; a lease whose run is not
            among them counts, but is never preempted nor held against a quota.
        now: The time of the rows, aware: the database's, the same for all workers.
        settings: The knobs.

    Returns:
        What becomes of the first runs of the queue.
    """
    pool, now_s = Pool(nodes, running, settings), now.timestamp()
    board = pool.board()
    runners = pool.runners(board)
    held: dict[str, Held] = {}
    for one in runners:
        held.setdefault(one.ask.team, Held()).add(one.ask)
    outcomes = decide(
        board,
        front,
        held,
        now_s=now_s,
        settings=settings,
        runners=[one for one in runners if one.preemptible],
    )
    outlook = pool.outlook(runners, now_s)
    entries: list[Start | Stay] = []
    for position, (run, outcome) in enumerate(zip(front, outcomes, strict=True), start=1):
        # The size that was chosen of it, with what that demands.
        chosen = next((each for each in run.larger if each is outcome.ask), run)
        lasts = chosen.lasts or run.lasts
        expected = outlook.add(outcome, lasts, run.name or run.run_id[:8], board)
        if outcome.start:
            admits = tuple(
                admit(chosen.demand, board.nodes[at], gpus) for at, gpus in outcome.start
            )
            entries.append(Start(chosen, position, admits))
        else:
            wait = explain(outcome, board)
            reserved = tuple(board.nodes[place.node].name for place in outcome.reserved)
            stay = Stay(
                run.run_id, position, wait, now, reserved=reserved, promised_at=run.promised_at
            )
            entries.append(_until(stay, expected))
    preempts = (
        Preempt(one.ask.run_id, outcome.ask.run_id)
        for outcome in outcomes
        for one in outcome.preempts
        if not one.stopping
    )
    return Plan(tuple(entries), tuple(preempts))


def _until(stay: Stay, expected: Expected) -> Stay:
    """*stay* with when it is expected to end."""
    if expected.unknown:
        name = shown(expected.unknown, 63)[1:-1]
        return replace(stay, unknown=f"nothing is known of how long {name} runs")
    if math.isinf(expected.expected_s):  # nobody can say when, of a disk that is full for one
        return stay
    return replace(
        stay,
        expected_at=moment(expected.expected_s),
        earliest_at=moment(expected.earliest_s),
        latest_at=moment(expected.latest_s),
    )
