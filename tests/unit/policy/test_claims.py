"""How many claims a node holds that no flow process has taken up yet."""

import pytest

from headway.policy.claims import claim_room


@pytest.mark.parametrize(
    ("cpus", "untaken", "slots", "room"),
    [
        (2.0, 0, None, 4),
        (2.0, 3, None, 1),
        (2.0, 4, None, 0),
        (2.0, 9, None, 0),
        (0.25, 0, None, 1),
        (64.0, 28, None, 100),
        (2.0, 0, 1, 1),
        (2.0, 4, 1, 0),
        (2.0, 0, 0, 0),
    ],
)
def test_two_a_core_are_claimed_ahead(cpus, untaken, slots, room) -> None:
    assert claim_room(cpus, untaken, slots) == room
