"""The policies that ours is compared with in a replay: first come first served, and backfill."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.policy.board import Board, Place
from headway.policy.decide import Outcome
from headway.policy.fit import Ask
from headway.policy.promise import PoolTotals
from headway.policy.room import Need
from headway.policy.settings import PolicySettings

# Where not even this fits, the rest of the queue need not be looked at.
_SMALLEST = Ask("", 0.0, 1, Need(1, 0.0), 1.0, 1.0)


@dataclass(slots=True)
class Fifo:
    """First come, first served: nobody passes anybody."""

    settings: PolicySettings
    totals: PoolTotals
    waiting: dict[str, Ask] = field(default_factory=dict)

    def add(self, ask: Ask) -> None:
        """*ask* joins the queue."""
        self.waiting[ask.run_id] = ask

    def ended(self, ask: Ask, now_s: float) -> None:
        """A run has ended; FIFO does not care whose it was."""

    def decide(self, board: Board, now_s: float) -> list[Outcome]:
        """Start from the front of the queue until one does not fit."""
        board.refresh(now_s, self.settings.overrun_frac)
        started = _start_in_order(board, self.waiting.values(), now_s)
        for outcome in started:
            del self.waiting[outcome.ask.run_id]
        return started


@dataclass(slots=True)
class Easy(Fifo):
    """First come, first served with backfill (Lifka 1995), as Slurm does.

    The head of the queue holds a reservation at its earliest start; others
    start, in the order of the queue, if they do not delay it.
    """

    def reservations(self) -> int:
        """How many jobs of the front of the queue hold one."""
        return 1

    def decide(self, board: Board, now_s: float) -> list[Outcome]:
        """Start from the front, reserve for those that do not fit, backfill behind them."""
        started = Fifo.decide(self, board, now_s)
        infeasible: dict[tuple[object, ...], float] = {}
        found: list[Outcome] = []
        reserved = 0
        for ask in self.waiting.values():
            if reserved >= self.reservations() and not board.has_room(_SMALLEST):
                break
            shape = (ask.gpus, ask.nodes, ask.gpu)
            place: tuple[Place, ...] = ()
            if infeasible.get(shape, math.inf) > ask.high_s:
                place = board.place_now(ask, now_s)
            if place:
                board.enter(ask, place, now_s)
                found.append(Outcome(ask, start=place))
                continue
            infeasible[shape] = min(ask.high_s, infeasible.get(shape, math.inf))
            if reserved < self.reservations():
                start_s, places = board.earliest(ask, now_s)
                board.reserve(ask, places, start_s)
                reserved += 1
        for outcome in found:
            del self.waiting[outcome.ask.run_id]
        return started + found


@dataclass(slots=True)
class Conservative(Easy):
    """The same where the first `window` jobs all hold a reservation, made anew each time.

    Feitelson and Weil (1998) give every job one; the bound is for the time it takes, as Slurm's
    bf_max_job_test is.
    """

    def reservations(self) -> int:
        """As many as one decision considers."""
        return self.settings.window


def _start_in_order(board: Board, line: Iterable[Ask], now_s: float) -> list[Outcome]:
    started: list[Outcome] = []
    for ask in line:
        places = board.place_now(ask, now_s)
        if not places:
            break
        board.enter(ask, places, now_s)
        started.append(Outcome(ask, start=places))
    return started
