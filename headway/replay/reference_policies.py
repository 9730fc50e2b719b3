"""The policies that ours is compared with in a replay: first come first served, and EASY."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.policy.board import Board
from headway.policy.decide import Outcome
from headway.policy.fit import Ask
from headway.policy.room import Need
from headway.policy.settings import PolicySettings

# Where not even this fits, the rest of the queue need not be looked at.
_SMALLEST = Ask("", 0.0, 1, Need(1, 0.0), 1.0, 1.0)


@dataclass(slots=True)
class Fifo:
    """First come, first served: nobody passes anybody."""

    settings: PolicySettings
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

    def decide(self, board: Board, now_s: float) -> list[Outcome]:
        """Start from the front, reserve for the first that does not fit, backfill behind it."""
        outcomes = Fifo.decide(self, board, now_s)
        line = iter(self.waiting.values())
        head = next(line, None)
        if head is None:
            return outcomes
        start_s, places = board.earliest(head, now_s)
        board.promise(head, places, start_s)
        infeasible: dict[tuple[object, ...], float] = {}
        found: list[Outcome] = []
        room = board.has_room(_SMALLEST)
        for ask in line:
            if not room:
                break
            shape = (ask.gpus, ask.nodes, ask.gpu)
            if infeasible.get(shape, float("inf")) <= ask.high_s:
                continue
            place = board.place_now(ask, now_s)
            if not place:
                infeasible[shape] = ask.high_s
                continue
            board.enter(ask, place, now_s)
            found.append(Outcome(ask, start=place))
            room = board.has_room(_SMALLEST)
        for outcome in found:
            del self.waiting[outcome.ask.run_id]
        return outcomes + found


def _start_in_order(board: Board, line: Iterable[Ask], now_s: float) -> list[Outcome]:
    started: list[Outcome] = []
    for ask in line:
        places = board.place_now(ask, now_s)
        if not places:
            break
        board.enter(ask, places, now_s)
        started.append(Outcome(ask, start=places))
    return started
