"""How many iterations a run is expected to have, by those of its recipe."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headway.estimate.features import Configuration
from headway.estimate.iterations import after_count_of, count_of, newest_alike
from headway.estimate.remaining.remaining_time import RemainingTime
from headway.estimate.spread import Z80
from headway.model.trace import AFTER, EPOCHS_DONE, Trace

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def ran(
    at: int,
    iterations: int | None,
    options: dict[str, float],
    epochs_done: float | None = None,
    **other: object,
) -> Trace:
    counted = {} if epochs_done is None else {EPOCHS_DONE: epochs_done}
    return Trace(
        network="r", gpu_type="cpu", gpus=1, batch_size=None, runtime_s=60.0,
        iterations=iterations, recipe="r", started_at=EPOCH + timedelta(hours=at),
        metrics=counted | {f"--{name}": value for name, value in options.items()}, **other,
    )  # fmt: skip


def wanted(**options: float) -> Configuration:
    return Configuration(
        recipe="r", settings={f"--{name}": value for name, value in options.items()}
    )


def said(*runs: Trace, **options: float) -> tuple[float, float, float] | None:
    law = count_of(wanted(**options), runs)
    if law is None:
        return None
    low, high = (math.exp(law.mean + sign * Z80 * law.stdev) for sign in (-1, 1))
    return low, math.exp(law.mean), high


def test_twice_the_epochs_are_about_twice_the_iterations() -> None:
    low, middle, high = said(ran(1, 3000, {"epochs": 3, "seed": 1}), epochs=6, seed=2)
    assert middle == pytest.approx(6000, rel=0.02)
    assert 3500 < low < high < 10_000


def test_the_range_is_as_wide_as_such_predictions_came_out() -> None:
    dice = random.Random(1)
    exact = [ran(n, 1000 * n, {"epochs": n}) for n in range(2, 12)]
    early = [ran(n, int(1000 * n * dice.uniform(0.4, 1.0)), {"epochs": n}) for n in range(2, 12)]
    (low, _, high), (early_low, _, early_high) = said(*exact, epochs=20), said(*early, epochs=20)
    assert low < 20_000 < high < 1.3 * low
    assert early_high > 2 * early_low


def test_what_its_network_is_like_seldom_changes_the_count() -> None:
    low, middle, high = said(ran(1, 3000, {"hidden": 64, "lr": 0.1}), hidden=128, lr=0.05)
    assert middle == pytest.approx(3000, rel=0.02)
    assert low < 3000 < high


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [ran(1, None, {"epochs": 3})],
        [ran(1, 3000, {"epochs": 3}, exit="failed")],
        [ran(1, 3000, {"epochs": 3}, nodes=2)],
        [ran(1, 3000, {})],  # how many epochs that were is not known
        [ran(1, 3000, {"epochs": 3, "draws": 5})],
        [ran(1, 3000, {"epochs": 3000})],
    ],
)
def test_without_a_relation_nothing_is_said(runs: list[Trace]) -> None:
    assert said(*runs, epochs=6) is None
    assert said(ran(1, 3000, {"mystery": 1}), mystery=100) is None


def test_what_is_left_follows_from_it_until_a_total_is_told() -> None:
    law = count_of(wanted(epochs=6), [ran(n, 1000 * n, {"epochs": n}) for n in (2, 3, 4)])
    remaining = RemainingTime()
    for done in range(0, 2001, 20):
        remaining.update(0.1 * done, done, usual=law)
    at = remaining.at(200.0)
    assert at.low_s < 400 < at.high_s
    assert at.remaining_s == pytest.approx(400, rel=0.1)
    assert at.high_s > 1.2 * at.low_s  # as little as the speed differs
    remaining.update(200.1, 2001, 2401, usual=law)
    assert remaining.at(200.1).remaining_s == pytest.approx(40, rel=0.1)


def test_a_run_that_has_outlasted_those_like_it_is_told_nothing() -> None:
    law = count_of(wanted(epochs=2), [ran(n, 1000 * n, {"epochs": n}) for n in (2, 3, 4)])
    remaining = RemainingTime()
    for done in range(0, 5001, 20):
        remaining.update(0.1 * done, done, usual=law)
    assert remaining.at(500.0).remaining_s is None
    remaining.update(500.1, 5001)
    assert remaining.at(500.1).remaining_s is None


def test_epochs_do_not_change_with_the_batch_nor_with_how_much_data_there_are() -> None:
    runs = [
        ran(1, 13_000, {}, epochs_done=1000.0),
        ran(2, 10_000, {"episode_length": 150, "samples": 9000}, epochs_done=1000.0),
    ]
    asked = wanted(batch_size=24)
    assert count_of(asked, runs) is None
    law = count_of(asked, runs, "epochs")
    assert math.exp(law.mean) == pytest.approx(1000.0, rel=0.02)
    assert 0.05 < Z80 * law.stdev < math.log(2.0)
    # Twice the epochs by an option are twice as many.
    law = count_of(wanted(epochs=6), [ran(1, 9, {"epochs": 3}, epochs_done=3.0)], "epochs")
    assert math.exp(law.mean) == pytest.approx(6.0, rel=0.02)
    assert count_of(wanted(passes=3), runs, "epochs") is None


def test_how_long_runs_go_on_when_their_count_is_over_is_learnt_from_those_that_did() -> None:
    runs = [ran(n, 100, {}, exit=how) for n, how in enumerate(["ok", "ok", "failed", "ok"])]
    runs = [
        replace(run, metrics={AFTER: at})
        for run, at in zip(runs, (8.0, 10.0, 999.0, 0.0), strict=True)
    ]
    assert after_count_of(wanted(), runs[:2]).mean == pytest.approx(math.log(9.0), rel=0.01)
    assert after_count_of(wanted(), runs[:3]) == after_count_of(wanted(), runs[:2])
    assert after_count_of(wanted(), runs[3:]).mean < 0.0
    assert after_count_of(wanted(), [ran(1, 100, {})]) is None
    assert after_count_of(replace(wanted(), recipe="another"), runs) is None


def test_the_runs_before_are_the_newest_of_this_site_that_ended_well() -> None:
    runs = [
        ran(5, 100, {}, run_id="e-1", exit="failed"),
        ran(4, 100, {}, run_id="other:7", source="lab2"),
        ran(4, 100, {}, run_id="d-1", source="lab2"),
        ran(3, 100, {}, run_id="5c-9f-2"),
        ran(2, 100, {}, run_id="b-1"),
    ]
    asked = replace(wanted(), gpus=1)
    assert list(newest_alike(asked, runs, 2)) == [("5c-9f", 2), ("b", 1)]
    assert list(newest_alike(asked, runs, 1)) == [("5c-9f", 2)]
    assert not list(newest_alike(replace(asked, gpus=2), runs, 2))
