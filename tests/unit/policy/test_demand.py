"""What becomes of a demand: cut to the node where it is a guess, raised after a kill."""

from dataclasses import replace

import pytest

from headway.model.attempt_record import Failures
from headway.model.lease import Basis, Demand, Sharing
from headway.model.node import Capacity, Gpu, Node, NodeSpace, Reserve
from headway.model.run import Exit, ExitKind
from headway.policy.demand import (
    after_gpu_out_of_memory,
    after_out_of_memory,
    raised,
    runs_again,
    sooner_on_cpu,
    survives_the_site,
    within,
)
from headway.units import GIB, MIB

NODE = Node("n", "p", Capacity(8, 64 * GIB), Reserve(0, 4 * GIB))
SPACE = NodeSpace(NODE, 60 * GIB)


def gpu_node(name, memory_gib, product, *sizes_gib):
    gpus = (Gpu(f"{name}{n}", n, product, size * GIB) for n, size in enumerate(sizes_gib))
    return Node(name, "p", Capacity(8, memory_gib * GIB, tuple(gpus)))


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
    demand = within(Demand(asked_gib * GIB, host_memory_basis=basis), [SPACE])
    assert demand == Demand(left_gib * GIB, host_memory_basis=basis)


def test_a_guess_is_cut_to_the_largest_node_that_could_hold_the_rest():
    """Not to the one that happened to look first, nor to one without the GPUs it asks for."""
    small, large = gpu_node("small", 64, "A100", 40, 40), gpu_node("large", 256, "T4", 16)
    spaces = [NodeSpace(small, 60 * GIB), NodeSpace(large, 240 * GIB), SPACE]
    guess = Demand(500 * GIB, gpus=1, gpu_memory_basis=Basis.PRIOR)
    assert within(guess, spaces).host_memory_bytes == 240 * GIB
    for changes in ({"gpu_memory_bytes": 90 * GIB}, {"gpu_type": "a100"}, {"gpus": 2}):
        demand = within(replace(guess, **changes), spaces)
        assert demand.host_memory_bytes == 60 * GIB
        assert demand.gpu_memory_bytes <= 40 * GIB
    gang = within(Demand(500 * GIB, host_memory_basis=Basis.PRIOR), spaces, 2)
    assert gang.host_memory_bytes == 60 * GIB


@pytest.mark.parametrize(
    ("basis", "peak_gib", "more_gib"),
    [
        (Basis.DECLARED, None, 6),
        (Basis.DECLARED, 2, 6),
        (Basis.DECLARED, 8, 12),
        (Basis.PREDICTED, None, 6),
        (Basis.PRIOR, None, 8),  # nothing was known
        (Basis.RETRY, None, 8),  # nor was the last raise enough
        (Basis.PRIOR, 20, 30),  # all there is
    ],
)
def test_a_killed_run_gets_more_at_most_all_there_is(basis, peak_gib, more_gib):
    demand = Demand(4 * GIB, cpus=2.0, host_memory_basis=basis)
    peak = None if peak_gib is None else peak_gib * GIB
    assert after_out_of_memory(demand, peak, 30 * GIB) == more_gib * GIB
    assert after_out_of_memory(demand, peak, 4 * GIB) is None
    more = raised(demand, {"host_memory_bytes": 6 * GIB})
    assert more == Demand(6 * GIB, cpus=2.0, host_memory_basis=Basis.RETRY)
    assert raised(demand, None) is demand


def test_a_run_killed_for_the_little_that_others_needed_gets_much_more():
    """Else a script that was changed would be killed at 7, 11 and 22 MiB."""
    learned = Demand(7 * MIB, host_memory_basis=Basis.PREDICTED)
    assert after_out_of_memory(learned, None, 30 * GIB) == 512 * MIB
    named = replace(learned, host_memory_basis=Basis.DECLARED)
    assert after_out_of_memory(named, None, 30 * GIB) == round(10.5 * MIB)


@pytest.mark.parametrize(
    ("basis", "sharing", "above_gib", "more"),
    [
        (Basis.DECLARED, Sharing.SHARED, 20, (30, False)),
        (Basis.PREDICTED, Sharing.SHARED, 20, (30, False)),
        (Basis.RETRY, Sharing.SHARED, 20, (40, False)),
        (Basis.RETRY, Sharing.SHARED, 50, (80, True)),
        (Basis.PRIOR, Sharing.WHOLE, 24, (48, True)),  # a larger GPU of the site
        (Basis.DECLARED, Sharing.WHOLE, 70, (80, True)),
        (Basis.PRIOR, Sharing.WHOLE, 80, None),
    ],
)
def test_out_of_gpu_memory_asks_for_more_then_for_a_whole_one_then_for_a_larger(
    basis, sharing, above_gib, more
):
    demand = Demand(GIB, gpus=1, gpu_memory_basis=basis, sharing=sharing)
    found = after_gpu_out_of_memory(demand, above_gib * GIB, 80 * GIB)
    if more is None:
        assert found is None
        return
    next_one = raised(demand, found)
    whole = Sharing.WHOLE if more[1] else Sharing.SHARED
    assert (next_one.gpu_memory_bytes, next_one.sharing) == (more[0] * GIB, whole)
    assert next_one.gpu_memory_basis is Basis.RETRY
    on_cpu = Demand(GIB)
    assert raised(on_cpu, found) == on_cpu


AGAIN = {ExitKind.OUT_OF_MEMORY, ExitKind.GPU_OUT_OF_MEMORY, ExitKind.INFRASTRUCTURE}


@pytest.mark.parametrize("kind", [kind for kind in ExitKind if kind is not ExitKind.PREEMPTED])
@pytest.mark.parametrize(
    ("failed", "retries", "left"), [(0, 0, False), (0, 1, True), (1, 1, False), (1, 2, True)]
)
def test_only_what_the_site_or_the_limit_ended_runs_again(kind, failed, retries, left):
    exit_, before = Exit(kind, 1, ""), Failures(failed, failed)
    assert runs_again(exit_, retries, before) is (left and kind in AGAIN)


def test_what_was_preempted_goes_on_and_counts_as_no_retry():
    stopped = Exit(ExitKind.PREEMPTED, 143, "")
    assert runs_again(stopped, 0, Failures(9, 9))


def test_the_program_and_the_site_are_counted_apart():
    lost, killed = Exit(ExitKind.INFRASTRUCTURE, None, ""), Exit(ExitKind.OUT_OF_MEMORY, 137, "")
    assert runs_again(lost, 1, Failures(program=9))
    assert runs_again(killed, 1, Failures(infrastructure=9))
    assert not survives_the_site(1, Failures(infrastructure=1))


def test_the_cpu_is_taken_where_nothing_is_known_or_it_is_sooner():
    assert sooner_on_cpu(900, 60, 1000)
    assert not sooner_on_cpu(1100, 60, 1000)
    assert sooner_on_cpu(9e9, 60, float("inf"))
    assert sooner_on_cpu(None, None, 1.0)
    assert sooner_on_cpu(None, None, None)
    assert not sooner_on_cpu(900, 60, None)  # behind a run of unknown length
    assert sooner_on_cpu(None, 60, float("inf"))
    assert sooner_on_cpu(None, 60, 1000)  # ten times 60
    assert not sooner_on_cpu(None, 600, 1000)
    assert sooner_on_cpu(600, None, 1000)
    assert not sooner_on_cpu(6000, None, 1000)
