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
    seen = Restarts().started(0.0).started(1.0).started(3.0).ready(8.0)
    now_s = 8.0 + STEADY_S + 1.0
    assert seen.started(now_s) == Restarts(now_s)
    assert seen.started(now_s - 2.0).due_s() == now_s - 2.0 + 8.0


def test_what_lives_long_and_is_never_ready_is_not_well() -> None:
    seen = Restarts().started(0.0).ready(1.0).started(100.0)
    assert seen.started(300.0).deaths == 1


def test_a_process_that_is_killed_every_twenty_seconds_comes_back_at_once() -> None:
    """With a back-off of a minute it would be there a third of the time."""
    seen, now_s = Restarts(), 0.0
    for _ in range(10):
        seen = seen.started(now_s).ready(now_s + 5.0)
        now_s += 20.0
        assert seen.due_s() < now_s
