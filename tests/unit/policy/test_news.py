"""What is said again of a run that waits, and what goes into its log."""

import pytest

from headway.model.lease import Resource, Wait
from headway.policy.news import Said, said_anew

CPUS = Wait(Resource.CPUS, "needs 2 CPUs; at most 1 is free for it, on a")


def first(expected_s: float | None = 600.0) -> Said:
    said = said_anew(None, CPUS, "needs 2 CPUs, about 10", expected_s, 0.0)
    assert said is not None
    assert said.logged_s == 0.0
    return said


def test_the_same_words_are_said_once() -> None:
    assert said_anew(first(), CPUS, "needs 2 CPUs, about 10", 600.0, 1e6) is None


def test_another_scarce_resource_is_news_at_once() -> None:
    found = said_anew(first(), Wait(Resource.GPUS, "a GPU"), "a GPU", 600.0, 1.0)
    assert found is not None
    assert found.logged_s == 1.0


def test_a_start_that_moves_a_little_is_not_said_for_five_minutes_and_never_logged() -> None:
    said = first()
    assert said_anew(said, CPUS, "about 11", 650.0, 200.0) is None
    found = said_anew(said, CPUS, "about 11", 650.0, 301.0)
    assert found is not None
    assert found.logged_s == 0.0


def test_a_start_that_moves_far_is_said_soon_and_logged_now_and_then() -> None:
    said = first()
    assert said_anew(said, CPUS, "about 30", 1800.0, 29.0) is None
    found = said_anew(said, CPUS, "about 30", 1800.0, 31.0)
    assert found is not None
    assert found.logged_s == 0.0
    later = said_anew(found, CPUS, "about 60", 3600.0, 301.0)
    assert later is not None
    assert later.logged_s == 301.0


def test_a_start_that_becomes_known_is_news() -> None:
    said = first(None)
    found = said_anew(said, CPUS, "about 10", 600.0, 301.0)
    assert found is not None
    assert found.logged_s == 301.0


@pytest.mark.parametrize(("recedes", "most"), [(False, 1), (True, 12)])
def test_a_line_that_moves_all_the_time_writes_few_lines(recedes: bool, most: int) -> None:
    """For an hour the start is some seconds off every five seconds, or never comes nearer."""
    said, logged = first(3600.0), 1
    for at in range(5, 3600, 5):
        expected_s = 3600.0 + (at if recedes else at % 40)
        found = said_anew(said, CPUS, f"about {at}", expected_s, float(at))
        said = found or said
        logged += found is not None and found.logged_s == at
    assert logged <= most
