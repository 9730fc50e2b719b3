"""Claims of runs whose starts fail."""

from datetime import UTC, datetime
from uuid import UUID

from headway.testing.clock import FakeClock
from headway.worker.claims import Claims

RUN = UUID(int=1)


def test_a_run_whose_starts_fail_rests_ever_longer_and_starts_anew_when_one_goes_well() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    claims = Claims(lambda _: None, clock)
    rests = []
    for _ in range(8):
        claims.failed(RUN)
        began_s = clock.monotonic_s()
        while RUN in claims.resting:
            clock.sleep(0.5)
        rests.append(clock.monotonic_s() - began_s)
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    claims.process_begins(RUN)
    assert claims.resting == frozenset()
    claims.failed(RUN)
    clock.sleep(1.0)
    assert claims.resting == frozenset()


def test_a_run_that_comes_again_much_later_is_as_one_that_never_failed() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    claims = Claims(lambda _: None, clock)
    for _ in range(5):
        claims.failed(RUN)
    clock.sleep(3600.0)
    assert claims.resting == frozenset()
    claims.failed(RUN)
    clock.sleep(1.0)
    assert claims.resting == frozenset()
