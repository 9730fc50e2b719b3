"""Made logs through parser and estimator: what is said of the time left, beside the truth."""

from collections.abc import Iterator

import pytest

from headway.estimate.remaining.remaining_time import RemainingEstimate, RemainingTime
from headway.model.progress import ProgressPoint
from headway.progress.parser import LogParser

Timed = Iterator[tuple[float, str]]
"""Seconds until it is printed, since what was before, and the text."""


def told(log: Timed, *fracs: float, epochs: int | None = None) -> list[tuple[float, ...] | None]:
    """At each of *fracs* of the run what is said of the rest, over the truth: its middle and ends.

    None where nothing is said.
    """
    printed, t_s = [], 0.0
    for after_s, text in log:
        t_s += after_s
        printed.append((t_s, text))
    said = []
    for at_s in (frac * t_s for frac in fracs):
        _, left = read([each for each in printed if each[0] <= at_s], at_s, epochs)
        rest = (left.remaining_s, left.low_s, left.high_s)
        said.append(None if None in rest else tuple((x or 0.0) / (t_s - at_s) for x in rest))
    return said


def read(
    printed: list[tuple[float, str]], at_s: float, epochs: int | None = None
) -> tuple[ProgressPoint | None, RemainingEstimate]:
    parser, remaining, newest = LogParser(epochs=epochs), RemainingTime(), None
    for t_s, text in printed:
        for newest in parser.feed(text.encode(), t_s):
            done = newest.epoch if newest.iteration is None else newest.iteration
            epoch = None if newest.iteration is None else newest.epoch
            remaining.update(
                t_s, done or 0.0, newest.total, epoch=epoch, took_s=newest.epoch_took_s
            )
    return newest, remaining.at(at_s)


def keras_fits() -> Timed:
    for _ in range(6):
        for epoch in range(1, 11):
            yield 0.0, f"Epoch {epoch}/10\n"
            yield 2.0, f"100/100 - 2s - 20ms/step - loss: {1 / epoch:.4f}\n"


def plain_epochs(*lengths: int, before: str = "") -> Timed:
    for number, epochs in enumerate(lengths, start=1):
        yield 0.0, before.format(number)
        for epoch in range(1, epochs + 1):
            yield 2.0, f"Epoch {epoch}/{epochs} loss={1 / epoch:.4f}\n"


def bar(text: str, total: int, each_s: float, begin: int = 0, *, every: int = 1) -> Timed:
    """As tqdm draws it; *total* may be another one at the end."""
    yield 0.0, drawn(text, begin, total, 0.0, "?")
    for done in range(begin + every, total + 1, every):
        left_s = f"00:{(total - done) * each_s:02.0f}"
        yield every * each_s, drawn(text, done, total, (done - begin) * each_s, left_s)


def drawn(text: str, done: int, total: int, took_s: float, left: str) -> str:
    return f"\r{text}{done * 100 // total:3}%|#  | {done}/{total} [00:{took_s:02.0f}<{left}, 9it/s]"


def bars(*each: Timed) -> Timed:
    for one in each:
        yield from one


@pytest.mark.parametrize(
    "log",
    [
        keras_fits(),
        plain_epochs(*[20] * 5),
        plain_epochs(10, 40),
        bars(*(bar("", 100, 0.2) for _ in range(5))),
        bars(bar("one: ", 100, 0.2), bar("two: ", 150, 0.2), bar("three: ", 150, 0.2)),
        bars(*(bar(f"Fold {i // 4} Epoch {i % 4 + 1}/4: ", 40, 0.2) for i in range(20))),
    ],
    ids=["keras", "epochs", "phases", "bars", "phases of bars", "folds"],
)  # fmt: skip
def test_of_fits_that_repeat_nobody_knows_how_many_will_come(log: Timed) -> None:
    """It said 5 to 17 % of the truth, and again and again that nothing is left."""
    assert told(log, 0.42, 0.5, 0.6) == [None] * 3


def test_text_that_is_printed_on_the_line_of_a_bar_hides_no_time() -> None:
    """tqdm moves its bar as the loop's next turn begins, at the moment of the text before it."""
    log = [(1.0, drawn("", 0, 15, 0.0, "?"))]
    for done in range(1, 16):
        log.append((2.0, f"epoch {done}/15, loss 0.5\n"))
        log.append((0.0, drawn("", done, 15, 2.0 * done, "00:09")))
    for middle, *_ in filter(None, said := told(iter(log), 0.3, 0.6, 0.9)):
        assert middle == pytest.approx(1.0, rel=0.2)
    assert None not in said


def test_a_short_count_before_a_long_one_was_a_warm_up() -> None:
    ((middle, low, high),) = filter(None, told(plain_epochs(2, 40), 0.6))
    assert low < 1.0 < high
    assert middle == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("every", [1, 20])
def test_who_does_much_before_it_counts_may_do_as_much_afterwards(every: int) -> None:
    """numpyro compiles for a minute, draws samples for ten seconds, and predicts: 1.3 of 38 s."""
    log = bars([(60.0, "compiles\n")], bar("sample: ", 100, 0.1, every=every), [(40.0, "done\n")])
    for middle, low, high in filter(None, told(log, 0.6, 0.62)):
        assert low <= middle < 0.2
        assert high > 1.0


@pytest.mark.parametrize("before", ["Fold {}/5\n", "fold: {}\n", "=== Fold {} ===\n"])
def test_epochs_of_a_fold_are_not_those_of_the_run(before: str) -> None:
    assert told(plain_epochs(*[20] * 5, before=before), 0.05, 0.1, 0.5) == [None] * 3


def test_epochs_that_are_named_below_a_bar_of_folds_are_not_those_of_the_run() -> None:
    def log() -> Timed:
        for fold in range(5):
            yield 0.0, drawn("Fold: ", fold, 5, fold * 40.0, "00:40") + "\n"
            yield from bars(*(bar(f"Epoch {epoch}/4: ", 40, 0.25) for epoch in range(1, 5)))

    assert told(log(), 0.05, 0.15, 0.5) == [None] * 3


def test_what_is_told_for_headway_is_of_the_run_also_in_a_fold() -> None:
    log = [(1.0, 'Fold 1/5\n{"headway": {"iteration": 3, "total": 100}}\n')]
    newest, _ = read(log, 1.0)
    assert newest is not None
    assert newest.total == 100


def test_a_bar_of_folds_with_bars_of_epochs_in_it_is_the_run() -> None:
    def log() -> Timed:
        yield 0.0, drawn("Fold: ", 0, 5, 0.0, "?") + "\n"
        for fold in range(5):
            yield from bar("Epoch: ", 20, 0.5)
            yield 0.0, "\n" + drawn("Fold: ", fold + 1, 5, fold * 10.0, "00:40") + "\n"

    for middle, low, high in filter(None, told(log(), 0.15, 0.5, 0.9)):
        assert low < 1.0 < high
        assert middle == pytest.approx(1.0, rel=0.1)


def growing(step: str, grows: int) -> Timed:
    total = 20
    for done in range(1, 200):
        if done > total - 5:
            total += grows
        yield 1.0, step.format(done, total)


@pytest.mark.parametrize(
    ("step", "grows"),
    [
        ("step {}/{} loss=0.5\n", 20),
        ("step {}/{} loss=0.5\n", 0),
        ("Epoch {}/{} loss=0.5\n", 0),
        ("\r 50%|#  | {}/{} [00:10<00:20, 9it/s]", 20),
        ('{{"headway": {{"iteration": {}, "total": {}}}}}\n', 20),
    ],
)
def test_a_total_that_was_passed_or_raised_is_believed_no_more(step: str, grows: int) -> None:
    assert told(growing(step, grows), 0.2, 0.5, 0.9) == [None] * 3
    newest, _ = read([(t_s, text) for t_s, (_, text) in enumerate(growing(step, grows))], 200.0)
    assert newest is not None
    assert newest.iteration in (199, None)
    assert newest.total is None


def test_of_what_comes_after_the_last_count_nothing_is_told() -> None:
    log = [(2.0 * epoch, f"Epoch {epoch}/9 loss=0.5\n") for epoch in range(1, 10)]
    assert read(log[:-1], 17.0)[1].remaining_s == pytest.approx(1.0, abs=0.2)
    assert read(log, 19.0)[1].remaining_s is None  # it was 0 s for half a minute


def test_validations_are_counted_off_as_they_run_also_the_last_one() -> None:
    """During one nothing was: 0.65 to 1.7 of the truth."""

    def log() -> Timed:
        for at in range(0, 1000, 100):
            for done in range(at + 10, at + 101, 10):
                yield 1.0, drawn("", done, 1000, 10.0, "00:40")
            yield from ((after_s, f"\n{text}") for after_s, text in bar("held out", 50, 0.4))

    for middle, low, high in filter(None, told(log(), 0.33, 0.39, 0.5, 0.69, 0.89, 0.92, 0.97)):
        assert low < 1.0 < high
        assert middle < 1.01  # whether one comes at the very end is not known
    middles = [each[0] for each in filter(None, told(log(), 0.33, 0.39, 0.5))]
    assert middles == pytest.approx([0.9] * 3, abs=0.06)


def told_by_skorch(lasted: str, import_s: float = 15.0) -> Timed:
    """*lasted* with the epoch's number in it is what each says of itself; it takes 4 seconds."""
    yield 0.0, "Training MLP classifier\n"
    for epoch in range(1, 21):
        loss = f"      {epoch}        {1 / epoch:.4f}       0.9494        0.1906"
        heading = "  epoch    train_loss    valid_acc    valid_loss     dur\n"
        heading += "-------  ------------  -----------  ------------  ------\n"
        text = f"{heading if epoch == 1 else ''}{loss}  {lasted.format(epoch)}\n"
        yield 4.0 + (import_s if epoch == 1 else 0.0), text


def test_a_first_epoch_that_says_how_long_it_took_holds_no_imports() -> None:
    """19 s after its start it was told 273 s of 78, as if each epoch had taken as long."""
    log = told_by_skorch("4.0469")
    first, later = filter(None, told(log, 0.205, 0.3, epochs=20))
    assert first[0] == pytest.approx(1.0, rel=0.15)
    assert first[1] < 1.0 < first[2]
    assert later[0] == pytest.approx(1.0, rel=0.1)


def test_what_says_something_else_than_how_long_an_epoch_took_is_given_up() -> None:
    (first,) = told(told_by_skorch("1.5", 0.0), 0.07, epochs=20)  # as if of its training alone
    (second,) = told(told_by_skorch("1.5", 0.0), 0.11, epochs=20)
    assert first is not None
    assert second is not None
    assert first[2] > 1.0  # that it took all of its time is in the interval
    assert second[0] == pytest.approx(1.0, rel=0.1)
    # Not believed at all: more than there was time for, or next to nothing of it.
    for said in ("400.0", "0.01"):
        (first,) = told(told_by_skorch(said, 0.0), 0.07, epochs=20)
        assert first is not None
        assert first[0] == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize(("first", "may_be_less"), [(1, True), (41, False)])
def test_of_a_later_attempt_what_the_job_says_is_but_the_most(
    first: int, may_be_less: bool
) -> None:  # fmt: skip
    """Who goes on from the fortieth of 100 epochs and counts from 1 has 60: 1.7 to 4 times said."""
    parser, remaining = LogParser(epochs=100, is_resumed=True), RemainingTime(is_resumed=True)
    for epoch in range(first, first + 21):
        for point in parser.feed(f"epoch {epoch} loss {1 / epoch:.3f}\n".encode(), float(epoch)):
            remaining.update(point.t_s, point.epoch or 0.0, point.total)
    remaining.may_end_early = parser.may_end_early
    left = remaining.at(first + 20.0)
    assert left.remaining_s is not None
    assert left.remaining_s == pytest.approx(100 - first - 19, rel=0.1)
    assert (left.low_s == 0.0) is may_be_less
    parser.feed(b"epoch 22/60 loss 0.1\n", 60.0)
    assert not parser.may_end_early  # the log says so itself
