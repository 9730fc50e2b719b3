"""Which part of a gang is slow, and what it lacks."""

import math
from collections.abc import Sequence

import pytest

from headway.model.progress import ProgressPoint
from headway.progress.straggler import Pace, pace_of, straggler_of


def points(every_s: float, count: int = 20, **metrics: float) -> list[ProgressPoint]:
    return [ProgressPoint(n * every_s, n, metrics=metrics) for n in range(1, count + 1)]


def test_what_a_program_says_of_its_steps_counts_before_when_its_lines_came() -> None:
    told = pace_of(1, "b", points(1.0, step_s=0.25, data_s=0.1))
    assert told == Pace(1, "b", 0.25, 0.1, 20)
    by_lines = pace_of(1, "b", points(1.0))
    assert by_lines == Pace(1, "b", pytest.approx(1.0), None, 20)


def test_the_newest_steps_count() -> None:
    early, late = points(1.0, 200, step_s=5.0), points(1.0, 260, step_s=1.0)[200:]
    found = pace_of(0, "a", [*early, *late])
    assert found is not None
    assert (found.step_s, found.steps) == (1.0, 260)


@pytest.mark.parametrize(
    "few",
    [
        [],
        points(1.0, 3),
        [ProgressPoint(float(n), epoch=n) for n in range(20)],
        [ProgressPoint(1.0, n) for n in range(20)],  # read all at once: no time between them
        [ProgressPoint(float(n), 7) for n in range(20)],
    ],
)
def test_nothing_is_said_of_who_says_too_little(few: Sequence[ProgressPoint]) -> None:
    assert pace_of(0, "a", few) is None


def pace(rank: int, step_s: float, data_s: float | None = None, busy: float | None = None) -> Pace:
    return Pace(rank, f"node-{rank}", step_s, data_s, 100, busy)


def test_the_slowest_is_a_straggler_when_it_takes_much_longer_than_the_median() -> None:
    assert straggler_of([pace(0, 1.0), pace(1, 1.1), pace(2, 1.05)]) is None
    assert straggler_of([pace(0, 1.0)]) is None
    found = straggler_of([pace(0, 1.0), pace(1, 1.5), pace(2, 1.0), pace(3, 1.1)])
    assert found is not None
    assert found.pace.rank == 1
    assert found.lost_s == pytest.approx(50.0)
    assert found.text == (
        "rank 1 on node-1 takes 1.5 s a step, 1.5 times the median part: 50 s lost in 100 steps; "
        "what it lacks is not known: neither data nor CPUs by what is measured"
    )
    both = straggler_of([pace(0, 1.0), pace(1, 2.0)])
    assert both is not None
    assert both.usual.rank == 0


def test_what_it_lacks_is_said_as_far_as_it_is_measured() -> None:
    by_data = straggler_of([pace(0, 1.0, 0.1), pace(1, 2.0, 0.9)])
    assert by_data is not None
    assert "it waits for data" in by_data.text
    by_cpus = straggler_of([pace(0, 1.0, 0.1), pace(1, 2.0, 0.2, busy=0.97)])
    assert by_cpus is not None
    assert "it lacks CPUs: those of its node are 97% in use" in by_cpus.text


def resumed(first: int, **metrics: float) -> list[ProgressPoint]:
    return [ProgressPoint(n * 10.0, first + 10 * n, metrics=metrics) for n in range(1, 21)]


def test_only_the_steps_of_this_attempt_are_lost_time() -> None:
    fast, slow = (pace_of(n, "a", resumed(10_000, step_s=s)) for n, s in ((0, 0.5), (1, 1.0)))
    assert fast is not None
    assert slow is not None
    assert (fast.steps, slow.steps) == (200, 200)
    found = straggler_of([fast, slow])
    assert found is not None
    assert found.lost_s == pytest.approx(100.0)


@pytest.mark.parametrize("step_s", [-1.0, 0.0, 1e300, math.nan, math.inf])
def test_a_step_that_cannot_be_does_not_count(step_s: float) -> None:
    assert pace_of(0, "a", points(1.0, step_s=step_s)) == pace_of(0, "a", points(1.0))


def test_what_a_program_claims_loses_no_more_than_the_time_that_has_passed() -> None:
    steps = [ProgressPoint(60.0 + n, 10**15 + n, metrics={"step_s": 0.3}) for n in range(20)]
    claims, usual = pace_of(1, "b", steps), pace_of(0, "a", points(1.0, step_s=1e-300))
    assert claims is not None
    assert usual is not None
    assert claims.steps * claims.step_s <= 80.0
    found = straggler_of([claims, usual])
    assert found is not None
    assert found.lost_s <= 80.0
    assert len(found.text) < 200
    untrue = pace_of(0, "a", points(1.0, step_s=0.25, data_s=-3.0))
    assert untrue is not None
    assert untrue.data_s is None
