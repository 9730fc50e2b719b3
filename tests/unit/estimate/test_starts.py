"""Starts with a score: intervals from what came, and how well starts were said."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from headway.estimate.starts import (
    Ratios,
    StartCalibration,
    learn,
    of_engine,
    score,
    scores_document,
)
from headway.ledger.codec import kept, to_json
from headway.model.run import Span
from headway.model.start_forecast import PlayedStarts, StartForecast

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def said(
    waited_s: float | None, *, planned_s: float = 600.0, low_s: float = 0.0, high_s: float = 1e6,
    hour: int = 0, at_submission: bool = True,
) -> StartForecast:  # fmt: skip
    said_at = NOON + timedelta(hours=hour)

    def at(seconds: float) -> datetime:
        return said_at + timedelta(seconds=seconds)

    started = None if waited_s is None else at(waited_s)
    return StartForecast(
        "run", said_at, planned_s, planned_s / 2, planned_s * 2,
        at(low_s), at(planned_s), at(high_s), 1, 3, at_submission, started
    )  # fmt: skip


def drawn(chance: random.Random, count: int) -> Iterator[StartForecast]:
    """Runs that wait about three times as long as is planned."""
    for hour in range(count):
        planned_s = chance.uniform(60.0, 7200.0)
        waited_s = 3 * planned_s * chance.lognormvariate(0.0, 0.7)
        yield said(waited_s, planned_s=planned_s, hour=hour)


def test_four_of_five_starts_lie_within_the_interval_that_is_learnt() -> None:
    chance = random.Random(1)
    learnt = learn(list(drawn(chance, 40_000)), NOON + timedelta(days=4000))
    within = 0
    for each in drawn(chance, 2000):
        wait = learnt.wait(Span(each.planned_low_s, each.planned_s, each.planned_high_s))
        within += wait.low_s <= (each.waited_s or 0.0) <= wait.high_s
    assert within / 2000 == pytest.approx(0.8, abs=0.04)


def test_an_engines_forecasts_are_taken_for_what_came_of_them() -> None:
    """It goes by time limits, of which the jobs before use half or less."""
    chance = random.Random(2)
    came = [
        said(chance.uniform(0.2, 0.6) * 3600.0, planned_s=3600.0, hour=hour) for hour in range(200)
    ]
    learnt = of_engine(came, NOON + timedelta(days=30))
    assert learnt.starts == learnt.said == learnt.held == 200
    assert 1.0 < learnt.error_frac < 2.5
    wait = learnt.wait(7200.0)
    assert wait is not None
    assert [each / 7200.0 for each in wait] == pytest.approx([0.24, 0.4, 0.56], abs=0.04)


def test_a_few_of_an_engines_forecasts_teach_nothing_and_who_waits_still_counts() -> None:
    few = [said(1800.0, planned_s=3600.0, hour=hour) for hour in range(9)]
    assert of_engine(few, NOON).wait(3600.0) is None
    waits = [said(None, planned_s=3600.0, hour=hour) for hour in range(8)]
    learnt = of_engine(
        [*few, said(1800.0, planned_s=3600.0, hour=9), *waits], NOON + timedelta(days=3)
    )
    wait = learnt.wait(3600.0)
    assert wait is not None
    assert wait.high_s > 10 * 3600.0


def test_what_is_said_in_one_hour_counts_once_and_those_that_wait_still_count_too() -> None:
    later, prior = NOON + timedelta(days=400), StartCalibration()
    assert learn([], later) == learn([said(None)] * 500, later) == prior
    burst = learn([said(60_000.0)] * 500, later)
    spread = learn([said(60_000.0, hour=hour) for hour in range(5000)], later)
    assert prior.ratios.high < burst.ratios.high < 1.1 * prior.ratios.high
    assert spread.ratios.high > 5 * prior.ratios.high
    # Two of three wait for months by now: the one that started at once is not all there is.
    waiting = [said(0.0 if hour % 3 else None, hour=hour) for hour in range(6000)]
    assert learn(waiting, later).ratios.high > 5 * prior.ratios.high


def test_the_ends_of_an_interval_are_in_order_and_no_start_is_beyond_all_dates() -> None:
    odd = StartCalibration(Ratios(3.0, 0.5))
    wait = odd.wait(Span(100.0, 100.0, 100.0))
    assert wait.low_s <= wait.median_s <= wait.high_s
    far = odd.forecast("a", NOON, Span(0.0, 1e300, 1e300), gpus=1, ahead=0, first=True)
    assert far.latest_at > NOON + timedelta(days=3000)


def test_what_was_learnt_is_kept_and_what_cannot_be_read_is_left_aside() -> None:
    learnt = StartCalibration(Ratios(0.5, 2.0))
    assert kept(StartCalibration, to_json(learnt)) == learnt
    for document in (
        {"ratios": ["x"]},
        {"ratios": 7},
        {"ratios": {"all": [1, 2, 3]}},
        {"ratios": [1, 2, 3]},
    ):
        assert kept(StartCalibration, document) is None
    played = PlayedStarts(NOON, {"a": Span(1.0, 2.0, 30.0)})
    assert kept(PlayedStarts, to_json(played)) == played
    for document in (None, {"waits": {"a": [1.0]}}, {"at": "noon"}):
        assert kept(PlayedStarts, document) is None


def test_a_wait_that_was_played_gets_shorter_with_time() -> None:
    played = PlayedStarts(NOON, {"a": Span(60.0, 600.0, 900.0)})
    assert played.wait("a", NOON + timedelta(seconds=300)) == (0.0, 300.0, 600.0)
    assert played.wait("b", NOON) is None


def test_the_score_counts_starts_within_and_how_far_off_they_were() -> None:
    within, outside = said(300.0), said(1200.0, high_s=900.0, at_submission=False)
    at_once, waits = said(0.0), said(None)
    assert score([waits]) is None
    assert score([within, outside, at_once, waits]) == (3, pytest.approx(2 / 3), 2, 0.75)
    rows = scores_document([within, outside])
    assert [(row["said"], row["coverage_frac"]) for row in rows] == [
        ("when it joined the queue", 1.0),
        ("each hour after", 0.0),
    ]
