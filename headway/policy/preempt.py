"""Preemption: which running runs to stop so that one of a higher priority may start."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.policy.board import Board, Place
from headway.policy.fit import Ask


@dataclass(frozen=True, slots=True, eq=False)
class Runner:
    """A running run, and what it holds."""

    ask: Ask
    places: tuple[Place, ...]
    started_s: float
    stopping: bool = False
    """Was told to stop already, and is still within its grace time."""
    preemptible: bool = False

    def lost_s(self, now_s: float) -> float:
        """GPU-seconds since its start: at most so much is done again."""
        return (now_s - self.started_s) * max(1, self.ask.gpus) * self.ask.nodes


def choose(
    board: Board, ask: Ask, runners: Sequence[Runner], now_s: float
) -> tuple[tuple[Runner, ...], tuple[Place, ...]]:
    """The runs that must go for *ask*, and where it can start once they are gone.

    Only runs of a lower priority than *ask* are stopped: the lowest first, and
    of these the one that loses least. None is stopped in vain: those without
    whom *ask* fits all the same are spared, and what those that are stopping
    already leave is used before others are stopped.

    Returns:
        The runs (stopping ones too) and the places; both empty when stopping
        all of them would not help.
    """
    lower = [one for one in runners if one.ask.priority < ask.priority]
    if not lower:
        return (), ()
    lower.sort(
        key=lambda one: (
            not one.stopping,
            one.ask.priority,
            one.lost_s(now_s),
            one.ask.run_id,
        )
    )
    empty = board.copy()
    gone: list[Runner] = []
    for one in lower:
        empty.leave(one.ask, one.places)
        gone.append(one)
        if empty.place_now(ask, now_s):
            break
    else:
        return (), ()
    # The last one is needed; of those before it the ones that lose most are spared first.
    for one in [each for each in reversed(gone[:-1]) if not each.stopping]:
        empty.enter(one.ask, one.places, now_s)
        if empty.place_now(ask, now_s):
            gone.remove(one)
        else:
            empty.leave(one.ask, one.places)
    return tuple(gone), empty.place_now(ask, now_s)
