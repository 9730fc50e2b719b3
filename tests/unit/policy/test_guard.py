"""The order of the guard: stopped in its grace time, dead, expired, given away."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.policy.guard import GuardTimes, Held, Kill, Renew, Stop, decide

TTLS = st.floats(2.0, 3600.0)
GRACES = st.floats(0.0, 600.0)
ALONE = Held("c", grace_s=10.0, renewed_s=0.0, expires=False)


@dataclass
class Node:
    """A node whose ledger answers now and then; its clock runs at *rate* of the database's."""

    times: GuardTimes
    grace_s: float
    rate: float
    renewed_s: float = 0.0
    asked_s: float = 0.0
    ledger_renewed_s: float = 0.0
    """By the database's clock, which is the test's."""
    term_s: float | None = None
    dead_s: float | None = None
    kills: list[Kill] = field(default_factory=list)

    def tick(self, now_s: float, answer: str) -> None:
        """What the guard does at *now_s*, where the ledger's *answer* is yes, lost or no."""
        own_s = now_s * self.rate
        held = Held("c", self.grace_s, self.renewed_s)
        for each in decide([held], self.asked_s, own_s, self.times):
            if isinstance(each, Renew):
                self.asked_s = own_s
                if answer != "no":
                    self.ledger_renewed_s = now_s
                if answer == "yes":
                    self.renewed_s = own_s
            elif isinstance(each, Stop):
                self.term_s = own_s if self.term_s is None else self.term_s
            elif self.dead_s is None:
                self.kills.append(each)
                self.dead_s = now_s


@given(
    ttl_s=TTLS,
    grace_s=GRACES,
    drift=st.floats(-1.0, 1.0),
    answers=st.lists(st.sampled_from(["yes", "lost", "no"]), max_size=30),
)
def test_a_container_that_ignores_sigterm_is_dead_before_its_place_is_given_away(
    ttl_s: float, grace_s: float, drift: float, answers: list[str]
) -> None:
    times = GuardTimes(ttl_s)
    node = Node(times, grace_s, rate=1.0 + drift * times.margin_s / ttl_s)
    step_s = times.tick_s
    script = iter([each for each in answers for _ in range(7)])
    now_s = 0.0
    while node.dead_s is None:
        now_s += step_s
        node.tick(now_s, next(script, "no"))
        assert now_s < 1000 * ttl_s
    given_away_s = node.ledger_renewed_s + times.ttl_s + times.margin_s
    assert node.dead_s + times.kill_s - step_s < given_away_s
    # Dead before ttl − margin has passed since the last renewal that the guard knows of.
    assert (node.dead_s - step_s) * node.rate - node.renewed_s <= times.end_s - times.kill_s
    assert node.term_s is not None or times.grace_s(grace_s) < 2 * step_s
    if node.term_s is not None:
        # SIGTERM early enough: all of its grace time lies before SIGKILL, less one tick.
        had_s = node.dead_s * node.rate - node.term_s
        assert had_s >= times.grace_s(grace_s) - 2 * step_s


@given(ttl_s=TTLS, grace_s=GRACES)
def test_a_lease_that_is_renewed_in_time_stops_nothing(ttl_s: float, grace_s: float) -> None:
    times = GuardTimes(ttl_s)
    late_s = times.renew_every_s + times.tick_s
    assert decide([Held("c", grace_s, 0.0)], 0.0, late_s, times) == [Renew()]


@given(ttl_s=TTLS, grace_s=GRACES, after_s=st.floats(0.0, 10_000.0))
def test_a_stale_container_is_killed_at_once(ttl_s: float, grace_s: float, after_s: float) -> None:
    for expires in (True, False):
        held = Held("c", grace_s, 0.0, expires=expires, stale=True)
        found = decide([held], after_s, after_s, GuardTimes(ttl_s))
        assert found == [Kill("c", after_s, stale=True)]


@given(ttl_s=TTLS, after_s=st.floats(0.0, 1e7))
def test_where_no_other_node_could_be_given_the_place_nothing_is_stopped(
    ttl_s: float, after_s: float
) -> None:
    assert decide([ALONE], after_s, after_s, GuardTimes(ttl_s)) == []


@given(ttl_s=TTLS, grace_s=GRACES, slept_s=st.floats(0.0, 1e6))
def test_after_a_sleep_nothing_gets_grace_beyond_the_end(
    ttl_s: float, grace_s: float, slept_s: float
) -> None:
    """The clock goes on while the machine sleeps: only what is left of the time is given."""
    times = GuardTimes(ttl_s)
    for each in decide([Held("c", grace_s, 0.0)], slept_s, slept_s, times):
        if isinstance(each, Stop):
            assert 0 < each.grace_s <= times.grace_s(grace_s)
            assert slept_s + each.grace_s <= times.end_s - times.kill_s + 1e-6
        else:
            assert each == Kill("c", slept_s, stale=False)
            assert slept_s >= times.end_s - times.kill_s - 1e-6


def test_it_renews_at_once_and_then_every_few_seconds() -> None:
    times = GuardTimes(900.0)
    assert decide([], None, 0.0, times) == [Renew()]
    assert decide([], 0.0, 4.9, times) == []
    assert decide([], 0.0, 5.0, times) == [Renew()]


@pytest.mark.parametrize(("grace_s", "outlives_s"), [(10.0, 820.0), (120.0, 710.0), (600.0, 415.0)])
def test_the_default_ttl_outlives_an_outage_of_ten_minutes(
    grace_s: float, outlives_s: float
) -> None:
    """With a grace time of up to 230 s; the table of docs/operating.md."""
    times = GuardTimes(900.0)
    held = [Held("c", grace_s, 0.0)]
    assert decide(held, outlives_s - 1, outlives_s - 1, times) == []
    assert decide(held, outlives_s, outlives_s, times) == [
        Stop("c", times.grace_s(grace_s), outlives_s)
    ]
