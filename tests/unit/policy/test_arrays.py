"""How many members of an array may run, and when its last one is expected to end."""

import pytest

from headway.policy.arrays import full_wait, last_end_s


def test_as_many_members_run_as_may() -> None:
    assert full_wait(3, 4) is None
    wait = full_wait(4, 4)
    assert wait is not None
    assert wait.reason == "its array runs 4 at a time, and 4 of it run"


@pytest.mark.parametrize(
    ("free_in_s", "members", "expected_s"),
    [
        ([30.0], 0, 30.0),
        ([30.0], 2, 230.0),
        ([0.0, 50.0], 3, 200.0),
        ([10.0, 20.0, 30.0], 6, 230.0),
    ],
)
def test_the_last_end(free_in_s: list[float], members: int, expected_s: float) -> None:
    assert last_end_s(free_in_s, members, 100.0) == expected_s
