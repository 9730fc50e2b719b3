"""The ranges of teams."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from headway.errors import InvalidInput
from headway.ledger import Ledger
from headway.model.number_range import NumberRange

POOL = NumberRange(200_000, 299_999)


def test_a_team_keeps_its_range_whatever_the_pool_is_later(ledger: Ledger) -> None:
    first = ledger.team_uids.of("vision", POOL)
    assert ledger.team_uids.of("vision", NumberRange(500_000, 599_999)) == first
    assert ledger.team_uids.of("speech", POOL) == NumberRange(201_000, 201_999)


def test_teams_that_come_at_once_get_ranges_of_their_own(ledger: Ledger) -> None:
    teams = [f"team-{number % 10}" for number in range(30)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda team: (team, ledger.team_uids.of(team, POOL)), teams))
    assert set(found) == set(ledger.team_uids.all().items())
    assert len({uids.first for _, uids in found}) == 10


def test_of_what_an_operator_names_all_is_noted_or_nothing(ledger: Ledger) -> None:
    ledger.team_uids.settle({"vision": NumberRange(200_500, 200_599)})
    assert ledger.team_uids.of("speech", POOL).first == 200_600  # behind it
    named = {"new": NumberRange(700_000, 700_009), "vision": NumberRange(700_100, 700_109)}
    with pytest.raises(InvalidInput, match="team vision has had 200500-200599"):
        ledger.team_uids.settle(named)
    assert "new" not in ledger.team_uids.all()
