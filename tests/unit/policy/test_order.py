"""The virtual system: who would end first if all runs shared the GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.policy.fit import Ask
from headway.policy.order import VirtualTime
from headway.policy.settings import PolicySettings, Share, TeamSettings
from tests.unit.policy.boards import ask


def virtual(*asks: Ask, gpus: int = 1, **weights: float) -> VirtualTime:
    teams = {name: TeamSettings(weight=weight) for name, weight in weights.items()}
    made = VirtualTime(PolicySettings(teams=teams), gpus)
    for one in asks:
        made.advance(one.submitted_s)
        made.enter(one)
    return made


def test_short_work_goes_first_among_those_who_come_together() -> None:
    seen = virtual(ask("long", runtime_s=1000), ask("short", runtime_s=10), ask("wide", gpus=20))
    assert list(seen.order()) == ["short", "long", "wide"]


def test_of_equal_work_who_came_first_goes_first() -> None:
    assert list(virtual(ask("b", submitted_s=-1.0), ask("a")).order()) == ["b", "a"]


def test_who_weighs_more_in_a_team_goes_first_with_the_same_work() -> None:
    team = TeamSettings(users={"ada": Share(weight=2.0), "*": Share(weight=0.5)})
    seen = VirtualTime(PolicySettings(teams={"red": team}), 1)
    for user in ("eve", "ada"):
        seen.enter(ask(user, runtime_s=100, team="red", user=user))
    seen.enter(ask("other", runtime_s=90, team="red"))  # nobody has said whose it is
    assert list(seen.order()) == ["ada", "other", "eve"]


def test_a_run_is_passed_only_until_its_virtual_work_is_done() -> None:
    long = ask("long", runtime_s=100)
    seen = virtual(long)
    for at in range(100):
        at_s = 2.0 * at
        seen.advance(at_s)
        one = ask(f"short{at:02d}", runtime_s=10, submitted_s=at_s)
        seen.enter(one)
        order = list(seen.order())
        if order[0] == "long":
            break
    # Alone it would need 100 s; it shares with more and more, and yet its turn comes.
    assert 100 <= seen.at_s < 1000


def test_the_tag_does_not_move_and_survives() -> None:
    seen = virtual(ask("other", runtime_s=1000))
    seen.advance(100.0)
    late = ask("late", runtime_s=50)
    seen.enter(late)
    assert late.tag == 150.0
    seen.advance(500.0)
    assert late.tag == 150.0
    again = VirtualTime(seen.settings, seen.gpus, seen.at_s, dict(seen.attained))
    again.enter(late)
    assert late.tag == 150.0


def test_teams_share_by_weight_before_their_runs_do() -> None:
    """The flood of one team delays itself: the other team's runs keep their part."""
    flood = [ask(f"f{at:03d}", team="flood", runtime_s=100) for at in range(100)]
    one = ask("one", team="calm", runtime_s=150)
    order = list(virtual(*flood, one).order())
    # Half of the GPU is its own: after 300 s of all, when three of a hundred have their 100 s.
    assert order[0] == "one"
    heavy = list(virtual(*flood, one, flood=1e6).order())
    assert heavy[-1] == "one"


def test_who_ended_there_is_ahead_of_all_who_have_not() -> None:
    seen = virtual(ask("late", runtime_s=10), gpus=4)
    seen.advance(100.0)
    seen.enter(ask("new", runtime_s=1, submitted_s=100.0))
    assert list(seen.order()) == ["late", "new"]


def test_nobody_attains_more_than_one_gpu() -> None:
    seen = virtual(ask("only", runtime_s=100), gpus=64)
    seen.advance(10.0)
    assert seen.attained == {"": 10.0}


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 500), st.sampled_from("abc")),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 8),
)
def test_the_order_is_that_in_which_they_really_end_there(
    rows: list[tuple[int, int, str]], gpus: int
) -> None:
    rows.sort()
    asks = [
        ask(f"{at:03d}", submitted_s=float(at_s), runtime_s=float(work_s), team=team)
        for at, (at_s, work_s, team) in enumerate(rows)
    ]
    seen = virtual(*asks, gpus=gpus, a=1.0, b=2.0, c=0.5)
    said = list(seen.order())
    by_team = {team: [one for one in asks if one.team == team] for team in "abc"}
    for team, mine in by_team.items():
        tags = [
            one.run_id
            for one in sorted(mine, key=lambda one: (one.tag, one.submitted_s, one.run_id))
        ]
        assert [run for run in said if run in tags] == tags, team
    assert sorted(said) == sorted(one.run_id for one in asks)
    # Played to the end, everybody gets there, and nobody attains more than there is.
    before = dict(seen.attained)
    seen.advance(seen.at_s + 1e6)
    for one in asks:
        assert seen.attained[one.team] >= (one.tag or 0.0) - 1e-6
        assert seen.attained[one.team] >= before.get(one.team, 0.0)


@pytest.mark.parametrize("step_s", [1.0, 7.0, 1000.0])
def test_it_is_the_same_in_small_steps_and_large_ones(step_s: float) -> None:
    asks = [ask(f"{at}", runtime_s=10.0 * (at + 1), team="ab"[at % 2]) for at in range(6)]
    at_once, stepwise = virtual(*asks, gpus=2), virtual(*asks, gpus=2)
    at_once.advance(50.0)
    now_s = 0.0
    while now_s < 50.0:
        now_s = min(now_s + step_s, 50.0)
        stepwise.advance(now_s)
    assert stepwise.attained == pytest.approx(at_once.attained)
