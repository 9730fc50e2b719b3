"""A gateway that is away for a while, and one that refuses."""

import pytest

from headway.bridges.patience import LONGEST_S, patiently
from headway.errors import GatewayRefused, GatewayUnreachable
from tests.ports.clock import FakeClock


def test_what_is_away_is_asked_again_and_not_for_ever() -> None:
    clock, asked = FakeClock(), []

    def ask() -> str:
        asked.append(clock.monotonic_s())
        if len(asked) < 4:
            raise GatewayUnreachable("http://site", "connection refused")
        return "here"

    assert patiently(ask, clock) == "here"

    def never() -> str:
        raise GatewayUnreachable("http://site", "connection refused")

    began_s = clock.monotonic_s()
    with pytest.raises(GatewayUnreachable):
        patiently(never, clock)
    assert LONGEST_S <= clock.monotonic_s() - began_s < LONGEST_S + 10.0


def test_a_refusal_is_told_at_once() -> None:
    def ask() -> str:
        raise GatewayRefused(403, "not yours")

    with pytest.raises(GatewayRefused):
        patiently(ask, FakeClock())
