"""Starts with a score: intervals from what came, and how well starts were said."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from headway.estimate.starts import (
    StartCalibration,
    calibration_document,
    calibration_of,
    learn,
    score,
    scores_document,
)
from headway.model.run import Span
from headway.model.start_forecast import StartForecast

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def said(
    waited_s: float | None, *, planned_s: float = 600.0, low_s: float = 0.0, high_s: float = 1e6,
    at_submission: bool = True,
) -> StartForecast:  # fmt: skip
    def at(seconds: float) -> datetime:
        return NOON + timedelta(seconds=seconds)

    started = None if waited_s is None else at(waited_s)
    return StartForecast(
        "run", NOON, planned_s, at(low_s), at(planned_s), at(high_s), 1, 3, at_submission, started
    )


def drawn(chance: random.Random, count: int) -> Iterator[StartForecast]:
    """Runs that wait about three times as long as is planned."""
    for _ in range(count):
        planned_s = chance.uniform(60.0, 7200.0)
        yield said(3 * planned_s * chance.lognormvariate(0.0, 0.7), planned_s=planned_s)


def test_four_of_five_starts_lie_within_the_interval_that_is_learnt() -> None:
    chance = random.Random(1)
    learnt = learn(drawn(chance, 400))
    within = 0
    for each in drawn(chance, 2000):
        planned = Span(each.planned_s, each.planned_s, each.planned_s)
        wait = learnt.wait(planned, gpus=1, ahead=3)
        within += wait.low_s <= (each.waited_s or 0.0) <= wait.high_s
    assert within / 2000 == pytest.approx(0.8, abs=0.04)


def test_the_plan_speaks_until_enough_is_known_and_who_still_waits_teaches_nothing() -> None:
    planned = Span(60.0, 600.0, 900.0)
    for forecasts in ([], [said(60.0)] * 29, [said(None)] * 500):
        assert learn(forecasts).wait(planned, gpus=1, ahead=3) == planned
    assert learn([said(6000.0)] * 30).wait(planned, gpus=1, ahead=3).median_s == pytest.approx(6000)


def test_groups_of_size_and_load_are_told_apart_once_they_are_large_enough() -> None:
    learnt = learn([said(6000.0)] * 300)
    assert len(learnt.ratios) > 1
    assert learnt.wait(Span(0, 600, 900), gpus=64, ahead=90).median_s == pytest.approx(6000)


def test_what_was_learnt_is_kept_and_what_cannot_be_read_is_left_aside() -> None:
    learnt = learn([said(900.0)] * 30)
    assert calibration_of(calibration_document(learnt)) == learnt
    for document in (None, {}, {"ratios": {"all": ["x"]}}, {"ratios": 7}):
        assert calibration_of(document) == StartCalibration()


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
