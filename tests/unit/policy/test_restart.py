"""When what has died is started again."""

from headway.policy.restart import LONGEST_PAUSE_S, STEADY_S, Restarts


def test_the_first_death_is_answered_at_once() -> None:
    assert Restarts().due_s() == 0.0


def test_what_goes_on_dying_is_started_ever_more_rarely() -> None:
    seen, now_s, pauses = Restarts(), 100.0, []
    for _ in range(10):
        seen = seen.started(now_s)
        pauses.append(seen.due_s() - now_s)
        now_s = seen.due_s()
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses == sorted(pauses)
    assert max(pauses) == LONGEST_PAUSE_S


def test_what_was_well_for_a_while_is_started_at_once_again() -> None:
    seen = Restarts().started(0.0).started(1.0).started(3.0)
    after = seen.started(3.0 + STEADY_S + 1.0)
    assert after == Restarts(3.0 + STEADY_S + 1.0)
    assert after.due_s() < seen.due_s() + STEADY_S
