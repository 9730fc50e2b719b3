"""What an operator writes about the line and its teams."""

import pytest
from pydantic import TypeAdapter, ValidationError

from headway.errors import InvalidInput
from headway.policy.settings import PolicySettings, TeamSettings
from headway.units import GIB

READ = TypeAdapter(PolicySettings).validate_python


@pytest.mark.parametrize(
    "quota", [{"max_host_memory": "200GiB"}, {"max_host_memory_bytes": 200.0 * GIB}]
)
def test_a_quota_of_memory_is_written_as_all_sizes_are(quota: dict[str, object]) -> None:
    """Version 0.1 took a number of bytes alone, such as 2e11; sites have it in their block."""
    assert READ({"teams": {"vision": quota}}).team("vision").max_host_memory_bytes == 200 * GIB


@pytest.mark.parametrize("quota", [{"max_gpu": 1}, {"max_host_memory": "many"}])
def test_a_quota_that_cannot_be_understood_is_not_dropped(quota: dict[str, object]) -> None:
    for team in (quota, {"users": {"ada": quota}}):
        with pytest.raises(ValidationError):
            READ({"teams": {"vision": team}})


def test_what_holds_for_a_user_is_by_name_else_that_of_all_others() -> None:
    users = {"ada": {"weight": 2, "max_host_memory": "1GiB"}, "*": {"max_running": 3}}
    team = READ({"teams": {"vision": {"max_gpus": 4, "users": users}}}).team("vision")
    assert (team.user("ada").weight, team.user("ada").max_host_memory_bytes) == (2.0, GIB)
    assert team.user("ada").max_running is None
    assert team.user("eve").max_running == 3
    assert TeamSettings().user("eve").max_running is None
    with pytest.raises(InvalidInput, match="weight"):
        READ({"teams": {"vision": {"users": {"ada": {"weight": 0}}}}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window", 0),
        ("reservations", 0),
        ("utilisation_limit", 0.0),
        ("promise_factor", 0.0),
        ("promise_factor", float("inf")),
        ("overrun_frac", float("nan")),
    ],
)
def test_a_knob_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        PolicySettings(**{name: value})


def test_knobs_of_before_are_ignored() -> None:
    """They stand in the blocks of older sites, whose workers must go on."""
    assert READ({"patience": 1000.0, "overtake_limit": 10, "window": 9}) == PolicySettings(window=9)
