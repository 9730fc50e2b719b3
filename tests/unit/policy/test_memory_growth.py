"""When a limit of memory is raised, and by how much."""

from hypothesis import given
from hypothesis import strategies as st

from headway.policy.memory_growth import REACTION_S, grown_limit, pause_s
from headway.units import GIB, MIB


def test_a_program_far_from_its_limit_keeps_it() -> None:
    assert grown_limit(GIB, 500 * MIB, 0.0) is None
    assert grown_limit(GIB, 500 * MIB, 100.0 * MIB) is None


def test_it_is_raised_before_it_is_full_and_the_earlier_the_faster_it_fills() -> None:
    assert grown_limit(GIB, 900 * MIB, 0.0) == 1.5 * GIB
    assert grown_limit(GIB, 600 * MIB, 1024.0 * MIB) is not None
    fast = grown_limit(GIB, 900 * MIB, 4.0 * GIB)
    assert fast is not None
    assert fast > 4 * GIB


@given(st.floats(0.0, 4 * GIB), st.integers(MIB, 64 * GIB), st.floats(0.0, 1.0))
def test_whoever_is_looked_at_in_time_is_never_full_before(
    rate: float, limit: int, used_frac: float
) -> None:
    """What needs no more now does not fill what is left until the next look and its reaction."""
    used = int(limit * used_frac)
    grown = grown_limit(limit, used, rate)
    if grown is None:
        assert used + rate * REACTION_S < limit
    else:
        assert grown >= 1.5 * limit
    assert 0.0 < pause_s(limit, used) <= 1.0
