"""What becomes of a demand: cut to the node where it is a guess, raised after a kill."""

import pytest

from headway.model.lease import Basis, Demand
from headway.model.node import Capacity, Node, Reserve
from headway.model.run import Exit, ExitKind
from headway.policy.demand import after_out_of_memory, raised, runs_again, sooner_on_cpu, within
from headway.units import GIB

NODE = Node("n", "p", Capacity(8, 64 * GIB), Reserve(0, 4 * GIB))


@pytest.mark.parametrize(
    ("basis", "asked_gib", "left_gib"),
    [
        (Basis.PRIOR, 100, 60),
        (Basis.PRIOR, 61, 60),
        (Basis.PRIOR, 60, 60),
        (Basis.PRIOR, 10, 10),
        (Basis.DECLARED, 100, 100),
        (Basis.PREDICTED, 100, 100),
        (Basis.RETRY, 100, 100),
    ],
)
def test_only_a_guess_is_cut_to_the_node(basis, asked_gib, left_gib):
    demand = within(Demand(asked_gib * GIB, host_memory_basis=basis), NODE)
    assert demand == Demand(left_gib * GIB, host_memory_basis=basis)


def test_a_killed_run_gets_half_as_much_again_as_was_not_enough():
    demand = Demand(4 * GIB, cpus=2.0, host_memory_basis=Basis.DECLARED)
    assert after_out_of_memory(demand, None) == 6 * GIB
    assert after_out_of_memory(demand, 2 * GIB) == 6 * GIB
    assert after_out_of_memory(demand, 8 * GIB) == 12 * GIB
    more = raised(demand, 6 * GIB)
    assert more == Demand(6 * GIB, cpus=2.0, host_memory_basis=Basis.RETRY)
    assert raised(demand, None) is demand


AGAIN = {ExitKind.OUT_OF_MEMORY, ExitKind.INFRASTRUCTURE}


@pytest.mark.parametrize("kind", [kind for kind in ExitKind if kind is not ExitKind.PREEMPTED])
@pytest.mark.parametrize(
    ("attempt", "retries", "left"), [(1, 0, False), (1, 1, True), (2, 1, False), (2, 2, True)]
)
def test_only_what_the_site_or_the_limit_ended_runs_again(kind, attempt, retries, left):
    exit_ = Exit(kind, 1, "")
    assert runs_again(exit_, attempt=attempt, retries=retries) is (left and kind in AGAIN)


def test_what_was_preempted_goes_on_and_counts_as_no_retry():
    stopped = Exit(ExitKind.PREEMPTED, 143, "")
    assert runs_again(stopped, attempt=9, retries=0, preemptions=8)
    lost = Exit(ExitKind.INFRASTRUCTURE, None, "")
    assert runs_again(lost, attempt=3, retries=1, preemptions=2)
    assert not runs_again(lost, attempt=3, retries=1, preemptions=1)


def test_the_cpu_is_taken_only_where_it_is_known_to_be_sooner():
    assert sooner_on_cpu(900, 60, 1000)
    assert not sooner_on_cpu(1100, 60, 1000)
    assert sooner_on_cpu(9e9, 60, float("inf"))
    assert not sooner_on_cpu(None, 60, float("inf"))
    assert not sooner_on_cpu(60, None, 1000)
