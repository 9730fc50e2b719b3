"""The queue played forward with runs that may have several sizes."""

from headway.policy.board import Board
from headway.policy.promise import PoolTotals
from headway.policy.settings import PolicySettings
from headway.replay.forward import Present, play_forward
from headway.replay.ours import Headway
from tests.unit.policy.boards import ask, board
from tests.unit.policy.test_sizing import elastic


def line(gpus: int) -> tuple[Headway, Board]:
    """An elastic run of 400 s on one GPU, and one behind it that wants them all."""
    made = Headway.empty(PolicySettings(), PoolTotals(gpus=gpus))
    made.add(elastic(team="red"))
    made.add(ask("behind", gpus=gpus, whole=True, submitted_s=1.0, runtime_s=1000.0))
    return made, board(gpus=gpus)


def test_a_run_at_a_larger_size_lasts_as_much_less() -> None:
    for gpus, wait_s in ((1, 400.0), (2, 200.0), (4, 100.0)):
        made, seen = line(gpus)
        present = Present(1.0, made, seen, [], lambda _: lambda _: 400.0)
        assert play_forward(present, frozenset({"behind"}), rounds=1) == {"behind": [wait_s]}


def test_what_it_holds_is_counted_and_given_back_at_its_size() -> None:
    made, seen = line(4)
    (outcome,) = made.decide(seen, 1.0)
    assert made.held["red"].gpus == 4
    ran, _ = made.queue.running["elastic"]
    seen.leave(outcome.ask, outcome.start)
    made.ended(ran, 101.0)
    assert (made.held["red"].gpus, made.held["red"].running) == (0, 0)
    assert [one.ask.run_id for one in made.decide(seen, 101.0)] == ["behind"]
