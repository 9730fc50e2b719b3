"""Never overcommitted: many processes, one slot."""

import pytest

from tests.support.race import race


def test_one_of_many_gets_the_last_slot(ledger_url: str) -> None:
    result = race(ledger_url, racers=6, rounds=60)
    assert result.overcommitted == 0
    assert result.without_winner == 0


@pytest.mark.postgresql
def test_without_the_lock_the_race_is_lost(ledger_url: str) -> None:
    """The test above has teeth: take the node's lock away and it sees overcommitment."""
    assert race(ledger_url, racers=6, rounds=60, locked=False).overcommitted > 0
