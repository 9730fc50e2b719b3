"""Runs whose starts fail."""

from datetime import UTC, datetime

from headway.worker.starts import Starts
from tests.ports.clock import FakeClock

RUN = "a"


def test_a_run_whose_starts_fail_rests_ever_longer_and_starts_anew_when_one_goes_well() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    starts = Starts(clock)
    rests = []
    for _ in range(8):
        starts.begin(RUN)
        assert starts.held == {RUN}
        starts.over(RUN, well=False)
        assert starts.held == frozenset()
        began_s = clock.monotonic_s()
        while RUN in starts.resting:
            clock.sleep(0.5)
        rests.append(clock.monotonic_s() - began_s)
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    starts.over(RUN, well=True)
    assert starts.resting == frozenset()
    starts.over(RUN, well=False)
    clock.sleep(1.0)
    assert starts.resting == frozenset()


def test_a_run_that_comes_again_much_later_is_as_one_that_never_failed() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    starts = Starts(clock)
    for _ in range(5):
        starts.over(RUN, well=False)
    clock.sleep(3600.0)
    assert starts.resting == frozenset()
    starts.over(RUN, well=False)
    clock.sleep(1.0)
    assert starts.resting == frozenset()
