"""What an attempt teaches by how it ended."""

import pytest

from headway.model.lease import Basis, Demand
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement
from headway.model.trace import AFTER
from headway.run.settle import after_count, lesson
from headway.units import GIB

MEASURED = Measurement(60.0, host_peak_bytes=2 * GIB, gpu_peak_bytes=5 * GIB)
GUESSED = Demand(GIB, gpus=1, gpu_memory_basis=Basis.PRIOR)


@pytest.mark.parametrize("kind", [ExitKind.TIMED_OUT, ExitKind.CANCELLED, ExitKind.PREEMPTED])
def test_what_was_cut_short_teaches_what_it_held_of_a_gpu_and_nothing_else(kind: ExitKind) -> None:
    found = lesson(Exit(kind, None, ""), MEASURED, GUESSED, 0, reports=2)
    assert found == Measurement(gpu_peak_bytes=5 * GIB)


@pytest.mark.parametrize(
    ("measured", "demand", "reports"),
    [
        (MEASURED, GUESSED, 1),  # it may not have trained on a batch yet
        (MEASURED, Demand(GIB, gpus=1, gpu_memory_basis=Basis.DECLARED), 2),
        (MEASURED, Demand(GIB, gpus=1, gpu_memory_basis=Basis.PREDICTED), 2),
        (Measurement(60.0), GUESSED, 2),  # the driver did not tell
    ],
)
def test_what_was_cut_short_teaches_nothing_where_more_is_known_or_less_was_seen(
    measured: Measurement, demand: Demand, reports: int
) -> None:
    assert lesson(Exit(ExitKind.TIMED_OUT, None, ""), measured, demand, 0, reports=reports) is None


def test_a_failure_teaches_nothing() -> None:
    assert lesson(Exit(ExitKind.FAILED, 1, ""), MEASURED, GUESSED, 0, reports=9) is None


def test_how_long_it_went_on_when_the_first_total_was_reached() -> None:
    first = [ProgressPoint(float(at), at, total=10) for at in range(1, 11)]
    second = [ProgressPoint(10.0 + at, at, total=None) for at in range(1, 8)]
    assert after_count([*first, *second], 19.0) == {AFTER: 9.0}
    assert after_count([ProgressPoint(4.0, epoch=3.0, total=3)], 4.5) == {AFTER: 0.5}
    # Of a program that tells of every third: its tenth was due at 10 s.
    assert after_count(first[:9:3] + first[8:9], 19.0)[AFTER] == pytest.approx(9.0)
    assert after_count(first[:-2], 19.0) == {}  # it ended early, or told no more
    assert after_count(first, None) == {}
    # Of a count without a total, where it came to; what it says again later is no count.
    assert after_count([*second, second[-1]._replace(t_s=18.5)], 19.0) == {AFTER: 2.0}
    assert after_count([], 19.0) == {}


@pytest.mark.parametrize("total", [None, 1000])
def test_a_count_that_stands_still_tells_nothing_of_its_end(total: int | None) -> None:
    first = ProgressPoint(1.0, iteration=100, total=1000)
    still = [ProgressPoint(at_s, iteration=500, total=total) for at_s in (2.0, 3.0)]
    assert after_count([first, *still], 9.0) == {}
    assert after_count([first, still[0], still[1]._replace(iteration=400)], 9.0) == {}
