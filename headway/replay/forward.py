"""The queue played forward many times, to tell when those who wait may start.

Each time the runs last what is drawn for them, and the very decision of the workers says who
starts. What comes of it differs from one time to the next as much as is not known: where one long
run decides, few minutes or many days. Nobody else joins: what later ones change is next to nothing
beside what is not known of the lengths (docs/development/estimates.md).
"""

import heapq
import math
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.model.run import Span
from headway.policy.board import Board
from headway.policy.preempt import Runner
from headway.replay.ours import Headway

ROUNDS = 20
_FEWEST_ROUNDS = 5
"""So many are played whatever they cost."""
_MOST_ENDS = 2000
"""A round is left after so many ends, or when it has taken too long; whoever waits then is reckoned
by the work before it."""

Draw = Callable[[str], float]
"""How long a run goes on from now, or from its start where it waits."""


@dataclass(frozen=True, slots=True)
class Present:
    """A pool at one moment."""

    now_s: float
    line: "Headway[Any]"
    board: Board
    runners: Sequence[Runner]
    draw: Callable[[int], Draw]
    """Draws once for all runs, by a seed."""


def play_forward(
    present: Present,
    wanted: frozenset[str],
    *,
    rounds: int = ROUNDS,
    budget_s: float = math.inf,
) -> dict[str, list[float]]:
    """How long each run of *wanted* waits from now on, each time that it is played.

    The same present draws the same.

    Args:
        present: The pool. Not changed.
        wanted: Runs that wait.
        rounds: So often it is played, …
        budget_s: … but no longer than this, after the first few times, none of which takes longer.
    """
    kept = pickle.dumps((present.line, present.board))
    waits: dict[str, list[float]] = {run_id: [] for run_id in wanted}
    began_s = time.monotonic()
    for number in range(rounds):
        if number >= _FEWEST_ROUNDS and time.monotonic() - began_s > budget_s:
            break
        line, board = pickle.loads(kept)  # noqa: S301 - a copy of what was written just above
        played = _Round(present, line, board, present.draw(number), set(wanted))
        for run_id, wait_s in played.waits(budget_s).items():
            waits[run_id].append(wait_s)
    return waits


def span_of(waits: Sequence[float]) -> Span:
    """The median of *waits* with their 80 % interval."""
    ordered = sorted(waits)

    def at(frac: float) -> float:
        place = frac * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    return Span(at(0.1), at(0.5), at(0.9))


class _Round:
    """The queue played forward once."""

    def __init__(
        self, present: Present, line: "Headway[Any]", board: Board, draw: Draw, wanted: set[str]
    ) -> None:
        self._line, self._board, self._draw, self._wanted = line, board, draw, wanted
        self._now_s = present.now_s
        self._waits: dict[str, float] = {}
        self._ends: list[tuple[float, str, Runner]] = []
        for one in present.runners:
            self._push(one, present.now_s)

    def waits(self, budget_s: float) -> Mapping[str, float]:
        """How long each run that is wanted waits."""
        at_s, over, until_s = self._now_s, 0, time.monotonic() + budget_s
        self._decide(at_s)
        while self._wanted and self._ends and over < _MOST_ENDS and time.monotonic() < until_s:
            at_s = self._ends[0][0]
            while self._ends and self._ends[0][0] <= at_s:
                self._end(heapq.heappop(self._ends)[2], at_s)
                over += 1
            self._decide(at_s)
        self._reckon(at_s)
        return self._waits

    def _decide(self, at_s: float) -> None:
        for outcome in self._line.decide(self._board, at_s):
            run_id = outcome.ask.run_id
            self._push(Runner(outcome.ask, outcome.start, at_s), at_s, outcome.times)
            if run_id in self._wanted:
                self._wanted.remove(run_id)
                self._waits[run_id] = at_s - self._now_s

    def _push(self, one: Runner, at_s: float, times: float = 1.0) -> None:
        run_id = one.ask.run_id
        heapq.heappush(self._ends, (at_s + self._draw(run_id) * times, run_id, one))

    def _end(self, one: Runner, at_s: float) -> None:
        self._board.leave(one.ask, one.places)
        if (running := self._line.queue.running.get(one.ask.run_id)) is not None:
            self._line.ended(running[0], at_s)

    def _reckon(self, at_s: float) -> None:
        """Whoever still waits starts when the work before it is done, as far as that is known."""
        before_s = at_s - self._now_s
        for run_id in self._line.queue.virtual.order():
            if (ask := self._line.queue.waiting.get(run_id)) is None:
                continue
            if run_id in self._wanted:
                self._waits[run_id] = before_s
            before_s += ask.mean_work_s / self._line.gpus
