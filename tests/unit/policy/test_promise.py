"""The promised start: that of a first-come queue, so that a flood buys nothing."""

import pytest

from headway.policy.promise import PoolTotals, Work, first_come_s
from headway.policy.room import Need
from headway.policy.settings import PolicySettings, TeamSettings
from tests.unit.policy.boards import ask

OWN_S = 25.0
"""100 s on one of four GPUs."""


def wait_s(
    waiting: dict[tuple[int, str], float], running: float = 0.0, priority: int = 0, **weights: float
) -> float:
    teams = {name: TeamSettings(weight=weight) for name, weight in weights.items()}
    one = ask("one", team="red", whole=True, priority=priority)
    return first_come_s(
        one,
        PoolTotals(gpus=4.0).work(one, one.mean_s),
        {key: Work(seconds) for key, seconds in waiting.items()},
        Work(running),
        PolicySettings(teams=teams),
    )


def test_all_that_runs_and_all_that_waits_of_its_team_is_before_it() -> None:
    assert wait_s({(0, "red"): 60.0}, running=40.0) == 100.0 + OWN_S
    assert wait_s({}, running=0.0) == OWN_S


def test_another_team_counts_up_to_its_share() -> None:
    assert wait_s({(0, "red"): 60.0, (0, "blue"): 1e9}) == 120.0 + OWN_S
    assert wait_s({(0, "red"): 60.0, (0, "blue"): 1e9}, blue=2.0) == 180.0 + OWN_S
    assert wait_s({(0, "red"): 60.0, (0, "blue"): 10.0}) == 70.0 + OWN_S
    assert wait_s({(0, "blue"): 1e9}) == OWN_S


def test_a_higher_priority_is_before_it_and_a_lower_one_is_not() -> None:
    assert wait_s({(1, "blue"): 50.0, (-1, "red"): 1e9}) == 50.0 + OWN_S
    assert wait_s({(1, "blue"): 50.0, (0, "red"): 1e9}, priority=2) == OWN_S


def test_the_scarcest_of_what_it_asks_for_counts() -> None:
    capacity = PoolTotals(gpus=4.0, cpus=10.0, host_memory_bytes=100.0)
    shared = ask("shared", load=0.5, runtime_s=100.0)
    assert capacity.work(shared, 100.0).gpus_s == pytest.approx(12.5)
    only_cpus = ask("cpus", gpus=0, host=Need(0, 2.0), runtime_s=100.0)
    own = capacity.work(only_cpus, 100.0)
    assert own == (0.0, 20.0, 0.0)
    waiting = {(0, ""): Work(1000.0, 30.0, 500.0)}
    said = first_come_s(only_cpus, own, waiting, Work(0.0, 5.0), PolicySettings())
    assert said == 35.0 + 20.0
    both = ask("both", gpus=0, host=Need(10, 2.0), runtime_s=100.0)
    own = capacity.work(both, 100.0)
    assert first_come_s(both, own, waiting, Work(0.0, 5.0), PolicySettings()) == 510.0
