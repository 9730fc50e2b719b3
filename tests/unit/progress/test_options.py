"""What the options of a command say of epochs and iterations."""

import pytest

from headway.progress.options import Totals, totals_of
from headway.progress.parser import LogParser


@pytest.mark.parametrize(
    ("command", "epochs", "iterations"),
    [
        ("python main.py --cuda --epochs 6", 6, None),
        ("python main.py --epochs=6 --seed 3", 6, None),
        ("python adder.py --trainer.max_iters=1200", None, 1200),
        ("python train.py trainer.max_epochs=20 +trainer.max_steps=1e3", 20, 1000),
        ("python run.py --num-train-epochs 3.0 --max_steps -1", 3, None),
        ("python a.py model/optim.num_epochs=4", 4, None),
        ("torchrun --nproc-per-node 2 main.py --max_iters 1_000", None, 1000),
        ("python train.py config/train_gpt.py --max_iters=2000", None, 2000),
        ("python a.py --epochs 3 --epochs 5", 5, None),
        ("python a.py --epochs 3 --max_epochs 5", None, None),
        ("python a.py --epochs many --n_estimators 0", None, None),
        ("python a.py --epochs", None, None),
        ("python epochs=5.py --log_every 6", None, None),
        ("python a.py --epochs 99999999999999999999", None, None),
        ("python main.py --nEpochs 6 --maxIter=90", 6, 90),
        ("python train_net.py --config-file x SOLVER.MAX_ITER 900 SOLVER.BASE_LR 0.1", None, 900),
    ],
)
def test_a_number_that_an_option_says(
    command: str, epochs: int | None, iterations: int | None
) -> None:
    assert totals_of(command.split()) == Totals(epochs, iterations)


def test_the_words_of_a_shell_are_read_as_it_reads_them() -> None:
    assert totals_of(["sh", "-c", "cd src && python a.py '--epochs=7' # --epochs 9"]).epochs == 7
    assert totals_of(["bash", "-lc", "python a.py --epochs 7 'never ends"]).epochs == 7
    assert totals_of(["python", "a.py", "--max-episodes", "500"]) == Totals(episodes=500)
    assert totals_of(["python", "a.py", "--note", "we use --epochs 7"]) == Totals()


def test_no_word_is_searched_for_long() -> None:
    assert totals_of(["-" * 100_000, "a=" * 100_000, *["x"] * 100_000]) == Totals()


def test_a_total_of_the_command_serves_a_log_that_says_none() -> None:
    """minGPT's adder: no total stands in its log."""
    parser = LogParser(iterations=1200)
    log = "".join(f"iter_dt 84.11ms; iter {at}: train loss 1.2345\n" for at in range(0, 1300, 100))
    points = parser.feed(log.encode(), 1.0)
    assert [point.total for point in points if (point.iteration or 0) <= 1200][-1] == 1200
    assert parser.feed(b"iter_dt 84.11ms; iter 1300: train loss 1.2\n", 2.0)[0].total is None


def test_what_the_log_says_wins() -> None:
    parser = LogParser(iterations=1200, epochs=6)
    points = parser.feed(b"Epoch 1/3: loss 0.5\nEpoch 2/3: loss 0.4\n", 1.0)
    assert {point.total for point in points} == {3}


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("python a.py --epochs 9 --patience 5", True),
        ("python a.py --early-stopping-rounds=10", True),
        ("sh -c 'python a.py trainer.early_stopping_patience=3'", True),
        ("EarlyStopping counter: 1 out of 7", True),
        ("Training until validation scores don't improve for 10 rounds", True),
        ("Will train until eval-auc hasn't improved in 10 rounds.", True),
        ("{'early_stopping': True, 'patience': 10}", True),
        ("python a.py --epochs 9 --patience 0", False),
        ("python a.py --no-early-stopping --lr_patience 5", False),
        ("early_stopping_rounds=None, early_stopping: False", False),
        ("the patience of a user", False),
    ],
)
def test_early_stopping_is_named_in_a_command_and_in_a_log(text: str, stops: bool) -> None:
    assert totals_of(text.split(" ")).stops_early is stops
    parser = LogParser()
    parser.feed(f"{text}\nepoch 1/9: loss 0.5\n".encode(), 1.0)
    assert parser.may_end_early is stops
