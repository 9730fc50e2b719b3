"""When the disk that a run has taken ends it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.policy.disk import DiskUse, automatic_reserve, why_too_much
from headway.units import GIB, MIB, TIB


def use(used: int, free: int = 100 * GIB, total: int = TIB, what: str = "outputs") -> DiskUse:
    return DiskUse(what, used, free, total)


def test_what_was_asked_for_is_the_limit() -> None:
    assert why_too_much([use(MIB)], MIB, None) == ""
    assert why_too_much([use(3 * GIB), use(GIB // 8, what="elsewhere")], MIB, None) == (
        "resources.disk: used 3.1 GiB of 1.0 MiB (3.0 GiB outputs, 128 MiB elsewhere); "
        "ask for more, or write less"
    )


def test_who_keeps_to_it_is_not_ended_for_a_full_disk() -> None:
    assert why_too_much([use(GIB, free=0)], GIB, 10 * GIB) == ""


def test_without_a_word_the_reserve_is_the_limit() -> None:
    assert why_too_much([use(80 * GIB, free=11 * GIB)], None, 10 * GIB) == ""
    said = why_too_much([use(80 * GIB, free=8 * GIB)], None, 10 * GIB)
    assert said.startswith("resources.disk: the node's disk has 8.0 GiB left, its reserve is 10.0")
    assert "this run has used 80.0 GiB without asking" in said


@given(
    small=st.integers(0, 50 * GIB), more=st.integers(1, 500 * GIB), free=st.integers(0, 100 * GIB)
)
def test_who_has_most_ends_first(small: int, more: int, free: int) -> None:
    if why_too_much([use(small, free)], None, 10 * GIB):
        assert why_too_much([use(small + more, free)], None, 10 * GIB)


def test_who_has_nothing_is_never_ended() -> None:
    assert why_too_much([use(0, free=0)], None, None) == ""


@pytest.mark.parametrize(
    ("total", "held"), [(8 * GIB, GIB), (100 * GIB, 5 * GIB), (10 * TIB, 20 * GIB)]
)
def test_the_automatic_reserve(total: int, held: int) -> None:
    assert automatic_reserve(total) == held
