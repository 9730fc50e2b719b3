"""A run whose speed changes on its way, as the one before it did."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from headway.estimate.remaining.course import Course, common_course
from headway.estimate.remaining.remaining_time import RemainingTime
from headway.model.progress import ProgressPoint

EXPLORES, FAST_S, SLOW_S = 10_000, 0.0004, 0.004
"""Steps that take a tenth of what later ones do, in which the network learns."""


def time_s(step: float, scale: float = 1.0) -> float:
    fast = min(step, EXPLORES)
    return 3.0 + scale * (FAST_S * fast + SLOW_S * (step - fast))


def points(total: int, *, scale: float = 1.0, every: int = 200) -> list[ProgressPoint]:
    steps = range(every, total + 1, every)
    return [ProgressPoint(time_s(step, scale), iteration=step, total=total) for step in steps]


@pytest.mark.parametrize("total", [25_000, 50_000])
@pytest.mark.parametrize("scale", [1.0, 1.7])
def test_what_is_left_follows_the_course_of_the_run_before(total: int, scale: float) -> None:
    course = Course.of(points(25_000))
    assert course is not None
    with_it, alone = RemainingTime(), RemainingTime()
    for each in points(total, scale=scale):
        with_it.update(each.t_s, each.iteration, total, course=course)
        alone.update(each.t_s, each.iteration, total)
        if each.iteration == 8000:
            left_s = time_s(total, scale) - each.t_s
            said = with_it.at(each.t_s)
            assert said.remaining_s == pytest.approx(left_s, rel=0.1)
            assert said.low_s < left_s < said.high_s
            assert alone.at(each.t_s).remaining_s < left_s / 3.0
            assert with_it.per_s == pytest.approx(1.0 / (scale * FAST_S), rel=0.05)
    assert with_it.per_s == pytest.approx(1.0 / (scale * SLOW_S), rel=0.05)


def test_a_run_that_turns_out_otherwise_is_believed() -> None:
    course, remaining = Course.of(points(25_000)), RemainingTime()
    for step in range(200, 15_001, 200):
        remaining.update(0.004 * step, step, 25_000, course=course)  # slow from its first step on
    assert remaining.at(60.0).remaining_s == pytest.approx(40.0, rel=0.35)


def test_how_many_there_will_be_is_weighed_too() -> None:
    course, remaining = Course.of(points(25_000)), RemainingTime()
    for each in points(25_000)[:40]:
        usual = NormalDist(math.log(25_000), 0.1)
        remaining.update(each.t_s, each.iteration, None, usual=usual, course=course)
    left_s = time_s(25_000) - time_s(8000)
    said = remaining.at(time_s(8000))
    assert said.remaining_s == pytest.approx(left_s, rel=0.15)
    assert said.low_s < left_s < said.high_s


def test_along_an_even_run_nothing_is_weighed() -> None:
    even = [ProgressPoint(5.0 + 0.1 * step, iteration=step) for step in range(1, 100)]
    assert common_course([even]) is None
    dice = np.random.default_rng(1)
    times = 5.0 + np.cumsum(dice.lognormal(-2.0, 0.7, 100))
    noisy = [ProgressPoint(float(t_s), iteration=n) for n, t_s in enumerate(times, start=1)]
    assert common_course([noisy]) is None
    compiled = [even[0]._replace(t_s=2.0, iteration=0), *even]
    assert common_course([[each._replace(t_s=each.t_s + 60.0) for each in compiled[1:]]]) is None
    later = [each._replace(t_s=each.t_s + 60.0 * (each.iteration > 0)) for each in compiled]
    assert common_course([later]) is None, "its first iteration was start-up"


@pytest.mark.parametrize("parts", [(0.9,), (0.49, 0.98), (0.3, 0.6, 0.9), (0.1, 0.5, 0.501, 0.9)])
def test_what_is_read_at_once_came_by_and_by(parts: tuple[float, ...]) -> None:
    reads = [300.0 * part for part in (*parts, 1.0)]
    told = [
        ProgressPoint(next(read for read in reads if read >= step), iteration=step)
        for step in range(1, 301)
    ]
    assert common_course([told]) is None
    unread = [  # for a while
        ProgressPoint(270.0 if 150 < step <= 270 else float(step), iteration=step)
        for step in range(1, 301)
    ]
    assert common_course([unread]) is None


def test_what_does_not_tell_has_none() -> None:
    told = points(25_000)
    assert Course.of([]) is None
    assert Course.of(told[:8]) is None, "too few"
    assert Course.of([*told, ProgressPoint(200.0, iteration=5, total=25_000)]) is None, "anew"
    assert Course.of([told[0]._replace(total=9), *told[1:]]) is None, "of something else"
    assert Course.of([ProgressPoint(1.0, metrics={"loss": 1.0})]) is None
    still = [each._replace(t_s=4.0) for each in told]
    assert Course.of(still) is None


def test_it_is_even_on_average_and_rises() -> None:
    course = Course.of(points(25_000))
    assert course is not None
    assert course.weighed(25_000) == pytest.approx(25_000)
    assert course.weighed(0) == 0.0
    weighed = [course.weighed(done) for done in range(0, 60_000, 500)]
    assert all(np.diff(weighed) > 0.0)
    assert course.weight(60_000) == pytest.approx(course.weight(20_000), rel=0.01)


def test_two_runs_have_to_agree() -> None:
    told = points(25_000)
    even = [ProgressPoint(5.0 + 0.1 * step, iteration=step) for step in range(1, 100)]
    otherwise = [
        each._replace(t_s=200.0 - before.t_s) for each, before in zip(told, told[::-1], strict=True)
    ]
    course = common_course([told])
    assert course is not None
    assert common_course([told, points(50_000)]) is not None
    assert common_course([told, even]) is None
    assert common_course([told, otherwise]) is None
    assert common_course([]) is None
