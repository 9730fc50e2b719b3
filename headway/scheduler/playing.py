"""How long runs wait, by playing the queue of a pool forward: beside the passes, within seconds."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from headway.estimate.lifetimes import Life, Lifetimes
from headway.estimate.usual import Kind
from headway.model.run import Span
from headway.model.start_forecast import PlayedStarts
from headway.policy.decide import Held
from headway.policy.fit import WaitingRun
from headway.policy.plan import Stay
from headway.policy.pool import Pool
from headway.replay.forward import ROUNDS, Draw, Present, play_forward, span_of
from headway.replay.ours import Headway
from headway.scheduler.planning import PoolNow, not_before
from headway.scheduler.snapshot import kind_of_run, node_view, running_run

_BUDGET_S = 2.0
"""Of one play of a whole queue."""


def play(now: PoolNow) -> PlayedStarts:
    """How long every run of the queue waits, by what is known now."""
    now = replace(now, known=replace(now.known, played=PlayedStarts()))
    at, made = now.seen.at, now.plan()
    found = waits_of(now, now.queue().waiting.keys(), budget_s=_BUDGET_S)
    waits = {run_id: span_of(each) for run_id, each in found.items()}
    waits |= {
        stay.run_id: not_before(stay, waits[stay.run_id])
        for stay in made.entries
        if isinstance(stay, Stay) and stay.run_id in waits
    }
    left = {record.run_id: now.known.left(record, at) for record in now.seen.holders}
    return PlayedStarts(at, waits, left)


def waits_of(
    now: PoolNow,
    wanted: Collection[str],
    also: Sequence[WaitingRun] = (),
    *,
    rounds: int = ROUNDS,
    budget_s: float,
) -> dict[str, list[float]]:
    """How long each run of *wanted* waits, each time that the queue is played.

    Rounds of one moment draw alike for the same runs: what a change does can be told by comparing
    round by round.

    Args:
        now: The pool.
        wanted: Runs of the queue.
        also: Runs that might be submitted; see `PoolNow.plan`.
        rounds: So often it is played at most.
        budget_s: See `play_forward`.
    """
    queue, settings = now.queue(also), now.waiting.settings
    gates, known = now.waiting.gates, now.known
    running = [running_run(record, now.seen, gates, known) for record in now.seen.holders]
    pool = Pool([node_view(record, now.seen) for record in now.seen.nodes], running, settings)
    line = Headway(settings, int(queue.totals.gpus), queue)
    for ask, _ in queue.running.values():
        line.held.setdefault(ask.team, Held()).add(ask)
    board = pool.board()
    present = Present(now.seen.at.timestamp(), line, board, pool.runners(board), _drawn(now, also))
    there = frozenset(wanted) & queue.waiting.keys()
    return play_forward(present, there, rounds=rounds, budget_s=budget_s)


def _drawn(now: PoolNow, also: Sequence[WaitingRun]) -> Callable[[int], Draw]:
    lives = dict(_lives(now, also))
    ended = (Life(one.kind, one.submitted_s, one.runtime_s, over=True) for one in now.known.ended)
    lifetimes = Lifetimes([*ended, *lives.values()], now.known.usual)

    def once(seed: int) -> Draw:
        left_s = lifetimes.round(seed)
        return lambda run_id: left_s(lives[run_id])

    return once


def _lives(now: PoolNow, also: Sequence[WaitingRun]) -> Iterator[tuple[str, Life]]:
    """Every run that has its place or waits."""
    for record in now.seen.holders:
        said = now.known.said.get(record.run_id)
        lasted_s = (now.seen.at - (record.started_at or now.seen.at)).total_seconds()
        learnt = record.prediction.learnt if record.prediction is not None else None
        tells = False
        if said is not None and said.attempt == record.attempt and said.remaining_s is not None:
            left = now.known.left(record, now.seen.at)
            learnt = Span(*(lasted_s + each for each in left)) if left is not None else learnt
            tells = said.done_frac is not None
        kind, submitted_s = kind_of_run(record), record.submitted_at.timestamp()
        yield record.run_id, Life(kind, submitted_s, max(lasted_s, 0.0), learnt=learnt, tells=tells)
    for run_id, entry in now.waiting.entries.items():
        yield run_id, Life(entry.kind, entry.run.submitted_s, learnt=entry.run.lasts)
    for run in also:
        known = now.waiting.entries.get(run.run_id)
        kind = (
            known.kind
            if known is not None
            else Kind("", run.user, "", run.gpus * run.nodes, team=run.team)
        )
        yield run.run_id, Life(kind, run.submitted_s, learnt=run.lasts)
