"""When the lines of a finished log were written."""

import math
from pathlib import Path

import pytest

from headway.progress.parser import LogParser
from headway.progress.stamps import LineClock

DATA = Path(__file__).parents[2] / "data" / "progress"


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("mmdetection", [60.0, 111.149, 2511.149]),
        ("caffe", [9.0, 9.00004, 54.527219, 54.527254, 114.527254]),
        ("dllogger-json", [60.0, 70.0]),
        ("tf-cifar10-tutorial", [0.0, 12.995856, 14.425352]),
        ("keras-verbose2", [math.nan] * 3),
    ],
)
def test_points_have_the_times_of_their_lines(name: str, times: list[float]) -> None:
    points = LogParser().feed((DATA / f"{name}.log").read_bytes(), math.nan)
    assert [point.t_s for point in points] == pytest.approx(times, abs=1e-3, nan_ok=True)


def test_a_time_that_is_known_is_not_asked_of_the_lines() -> None:
    points = LogParser().feed((DATA / "mmdetection.log").read_bytes(), 5.0)
    assert {point.t_s for point in points} == {5.0}


@pytest.mark.parametrize(
    "line", ["2026-02-30 10:00:00 x", "2026-13-01 10:00:00", "10:00", "", "x" * 200]
)
def test_what_is_no_time_is_none(line: str) -> None:
    assert math.isnan(LineClock().seconds(line))


def test_times_never_are_before_the_first() -> None:
    clock = LineClock()
    assert clock.seconds("2026-01-01 10:00:00,500 a") == 0.0
    assert clock.seconds("2026-01-01 10:00:01.750 b") == pytest.approx(1.25)
    assert clock.seconds("2026-01-01 09:00:00 c") == 0.0
