"""How often somebody may ask."""

from hypothesis import given
from hypothesis import strategies as st

from headway.policy.rate_limit import Bucket, Rate, take

RATE = Rate(per_s=2.0, burst=5)


def test_a_burst_passes_and_then_a_steady_stream() -> None:
    bucket, waits = None, []
    for _ in range(6):
        bucket, wait_s = take(bucket, 0.0, RATE)
        waits.append(wait_s)
    assert waits == [0.0] * 5 + [0.5]
    assert take(bucket, 0.5, RATE)[1] == 0.0
    assert take(bucket, 0.4, RATE)[1] > 0.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    assert take(Bucket(0.0, 10.0), 5.0, RATE)[1] == 0.5


@given(st.lists(st.floats(0.0, 3.0), max_size=80))
def test_no_more_pass_than_the_rate_allows(pauses: list[float]) -> None:
    bucket, now_s, passed = None, 0.0, 0
    for pause_s in pauses:
        now_s += pause_s
        bucket, wait_s = take(bucket, now_s, RATE)
        passed += wait_s == 0.0
    assert passed <= RATE.burst + RATE.per_s * now_s + 1e-6
