"""Uids of teams: no two teams share one, and none moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.model.container_policy import ContainerPolicy
from headway.model.number_range import NumberRange
from headway.policy.team_uids import RANGE_SIZE, agree, allot

POOL = NumberRange(200_000, 202_499)
starts = st.integers(199_000, 203_000)


@given(st.dictionaries(st.text("abc", min_size=1), st.tuples(starts, st.integers(0, 900))))
def test_a_new_range_meets_no_other(named: dict[str, tuple[int, int]]) -> None:
    taken: dict[str, NumberRange] = {}
    for team, (first, more) in named.items():
        found = NumberRange(first, first + more)
        if not any(found.meets(each) for each in taken.values()):
            taken[team] = found
    firsts = range(POOL.first, POOL.last - RANGE_SIZE + 2)
    gaps = (NumberRange(each, each + RANGE_SIZE - 1) for each in firsts)
    free = [gap for gap in gaps if not any(gap.meets(each) for each in taken.values())]
    if free:
        assert allot("new", taken, POOL) == free[0]
    else:
        with pytest.raises(InvalidInput, match="no 1000 in a row are left"):
            allot("new", taken, POOL)


def test_what_the_operator_names_is_taken_unless_it_is_anothers() -> None:
    vision, speech = NumberRange(300_000, 300_999), NumberRange(300_500, 300_600)
    assert agree({}, {"vision": vision}) == {"vision": vision}
    assert agree({"vision": vision}, {"vision": vision}) == {}
    with pytest.raises(InvalidInput, match="team vision has 300000-300999"):
        agree({"vision": vision}, {"speech": speech})
    with pytest.raises(InvalidInput, match="team vision has 300000-300999"):
        agree({}, {"vision": vision, "wide": NumberRange(1000, 400_000)})


def test_a_range_never_moves() -> None:
    has, wanted = NumberRange(200_000, 200_999), NumberRange(300_000, 300_999)
    with pytest.raises(InvalidInput, match=r"uids: got .300000-300999.; team vision has had 2000"):
        agree({"vision": has}, {"vision": wanted})


@pytest.mark.parametrize("uids", ["0-5", "999-2000", "5", "2000000000-2147483647", "9-1", "x", ""])
def test_the_systems_uids_are_no_teams(uids: str) -> None:
    with pytest.raises(ValueError, match=r"uids|range"):
        ContainerPolicy.model_validate({"teams": {"vision": {"uids": uids}}})


def test_a_range_is_written_as_it_is_read() -> None:
    policy = ContainerPolicy.model_validate({"teams": {"vision": {"uids": "200000-200999"}}})
    assert policy.teams["vision"].uids == NumberRange(200_000, 200_999)
    written = policy.model_dump(mode="json")
    assert written["teams"]["vision"]["uids"] == "200000-200999"
    assert ContainerPolicy.model_validate(written) == policy
