"""Of a run that may have several sizes: which one pays best of those for which there is room."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from headway.policy.board import Board
from headway.policy.fit import Ask
from headway.policy.preempt import Runner

AskT = TypeVar("AskT", bound=Ask)

_GROWS_FOR = 2.0
"""A restart has to save so many times what it costs: both are predicted."""


def worth(ask: Ask) -> float:
    """Runtime times what it costs in GPUs; the smaller, the better the size.

    The least of it is the knee of Eager, Zahorjan and Lazowska (Speedup versus efficiency in
    parallel systems, 1989), where efficiency ÷ time is greatest: twice the GPUs pay where they
    save 30 % of the time. Where nothing is known of what more GPUs bring, one size takes as long
    as another, and the smallest is the best.
    """
    return ask.median_s**2 * _gpus(ask)


def better(ask: AskT) -> Sequence[AskT]:
    """The sizes larger than *ask* that pay more, the best first."""
    found = [each for each in ask.larger if _gpus(each) > _gpus(ask) and worth(each) < worth(ask)]
    return sorted(found, key=lambda each: (worth(each), each.nodes, each.gpus))


def _gpus(ask: Ask) -> int:
    """In all; a node without any counts as one."""
    return max(ask.gpus, 1) * ask.nodes


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a running run is that could go on at a larger size."""

    left_s: float
    """It goes on so long at the size that it has."""
    undone_s: float
    """Since its newest checkpoint: so much is done again."""
    restart_s: float
    """From its stop until its program runs again."""


def grows(
    ask: AskT, runner: Runner, standing: Standing, board: Board, now_s: float
) -> Sequence[AskT]:
    """The larger sizes at which a running run may go on now, the best first; mostly none.

    Room for one is there beside all others once it has left its own, and the restart saves twice
    what it costs. Only for a board on which nobody waits for room: whoever does goes before.

    Args:
        ask: The run at the size that it has, with those that it may have.
        runner: The same on the board.
        standing: How far it is.
        board: Not changed.
        now_s: The time of the decision.
    """
    least_s = _GROWS_FOR * (standing.undone_s + standing.restart_s)
    pay = [
        each
        for each in better(ask)
        if standing.left_s * (1 - each.median_s / ask.median_s) > least_s
    ]
    if not pay:
        return pay
    without = board.copy()
    without.leave(runner.ask, runner.places)
    return [each for each in pay if without.place_now(each, now_s)]
