import subprocess
import sys

import pytest

from headway.estimate.prior import (
    HOST_FLOOR_BYTES,
    SMALL_DATA_BYTES,
    demand_for,
    fair_host_bytes,
)
from headway.model.job import TrainingJob
from headway.model.lease import Basis, Sharing
from headway.model.node import Capacity, Gpu, Node, NodeSpace
from headway.model.run import Prediction
from headway.units import GIB, MIB

UNKNOWN = Prediction()


def job(**changes):
    return TrainingJob.model_validate(
        {"name": "t", "image": "python:3.11", "command": ["python"], **changes}
    )


def test_host_memory_is_ten_times_the_data_set():
    demand = demand_for(job(dataset={"uri": "/d", "size": "1GiB"}), UNKNOWN)
    assert demand.host_memory_bytes == 10 * GIB
    assert demand.host_memory_basis is Basis.PRIOR


def test_the_measured_size_wins_over_the_declared_one():
    asked = job(dataset={"uri": "/d", "size": "1GiB"})
    assert demand_for(asked, UNKNOWN, 2 * GIB).host_memory_bytes == 20 * GIB


def test_with_a_small_data_set_the_framework_needs_more_than_ten_times_it():
    asked = job(dataset={"uri": "/d", "size": "1MiB"})
    assert demand_for(asked, UNKNOWN, fair_bytes=8 * GIB).host_memory_bytes == SMALL_DATA_BYTES
    assert demand_for(asked, UNKNOWN, fair_bytes=GIB).host_memory_bytes == GIB


def test_with_nothing_known_it_is_a_fair_part():
    for asked in (job(), job(dataset={"uri": "/d"})):
        demand = demand_for(asked, UNKNOWN, fair_bytes=7 * GIB)
        assert (demand.host_memory_bytes, demand.host_memory_basis) == (7 * GIB, Basis.PRIOR)
    assert demand_for(job(dataset={"uri": "/d"}), UNKNOWN, GIB).host_memory_bytes == 10 * GIB


def space(name, cpus, memory_gib, gpus=0, *, left_gib=None):
    has = tuple(Gpu(f"{name}{n}", n, "NVIDIA A100", 40 * GIB) for n in range(gpus))
    node = Node(name, "gpu", Capacity(cpus, memory_gib * GIB, has))
    return NodeSpace(node, (memory_gib if left_gib is None else left_gib) * GIB)


@pytest.mark.parametrize(
    ("asked", "part_gib"),
    [
        ({"cpus": 1}, 8),
        ({"cpus": 4}, 32),
        ({"cpus": 1, "gpus": 1}, 16),
        ({"cpus": 8, "gpus": 1}, 64),
        ({"cpus": 64}, 128),
        ({"cpus": 0.01}, 0.5),
    ],
)
def test_the_fair_part_is_of_the_largest_node_by_the_larger_share(asked, part_gib):
    spaces = [space("small", 2, 16), space("large", 16, 128, gpus=8), space("other", 64, 96)]
    assert fair_host_bytes(job(resources=asked), spaces) == part_gib * GIB


def test_two_unknown_jobs_of_a_cpu_each_fit_on_a_node_of_two_beside_strangers():
    """A run of all CPUs asks for all that strangers leave, not for what nobody can give."""
    spaces = [space("n", 2, 23, left_gib=18)]
    assert fair_host_bytes(job(), spaces) == 9 * GIB
    assert fair_host_bytes(job(resources={"cpus": 2}), spaces) == 18 * GIB
    assert fair_host_bytes(job(), []) == HOST_FLOOR_BYTES


def test_what_was_not_enough_before_is_at_least_doubled():
    killed = Prediction(host_above_bytes=6 * GIB)
    assert demand_for(job(), killed, fair_bytes=4 * GIB).host_memory_bytes == 12 * GIB
    assert demand_for(job(), killed, fair_bytes=16 * GIB).host_memory_bytes == 16 * GIB


def test_a_program_that_takes_next_to_nothing_gets_what_the_engine_starts():
    demand = demand_for(job(), Prediction(host_peak_bytes=700 * 1024))
    assert (demand.host_memory_bytes, demand.host_memory_basis) == (6 * MIB, Basis.PREDICTED)


def test_declared_wins_over_predicted_and_predicted_over_the_rule():
    predicted = Prediction(host_peak_bytes=3 * GIB, gpu_peak_bytes=5 * GIB)
    demand = demand_for(job(resources={"gpus": 1}), predicted, 1 * GIB)
    assert (demand.host_memory_bytes, demand.gpu_memory_bytes) == (3 * GIB, 5 * GIB)
    assert demand.host_memory_basis is demand.gpu_memory_basis is Basis.PREDICTED
    declared = job(resources={"gpus": 1, "gpu_memory": "2GiB", "host_memory": "1GiB"})
    demand = demand_for(declared, predicted, 1 * GIB)
    assert (demand.host_memory_bytes, demand.gpu_memory_bytes) == (1 * GIB, 2 * GIB)
    assert demand.host_memory_basis is demand.gpu_memory_basis is Basis.DECLARED


def test_where_nothing_is_known_of_gpu_memory_it_is_a_whole_gpu():
    demand = demand_for(job(resources={"gpus": 1}), UNKNOWN)
    assert (demand.sharing, demand.gpu_memory_bytes) == (Sharing.WHOLE, 0)
    assert (demand.gpu_memory_basis, demand.gpu_utilisation_frac) == (Basis.PRIOR, 1.0)
    assert demand_for(job(resources={"gpus": 0}), UNKNOWN).gpu_memory_bytes == 0
    asked = job(resources={"gpus": 1, "sharing": "whole"})
    assert demand_for(asked, UNKNOWN).gpu_memory_basis is Basis.DECLARED
    larger = demand_for(asked, Prediction(gpu_above_bytes=40 * GIB))
    assert (larger.gpu_memory_bytes, larger.gpu_memory_basis) == (46 * GIB, Basis.PRIOR)


def test_a_shared_gpu_is_asked_for_as_far_as_it_is_used():
    sharing = job(resources={"gpus": 1, "gpu_memory": "2GiB"})
    whole = job(resources={"gpus": 1, "sharing": "whole"})
    predicted = Prediction(gpu_utilisation_frac=0.2)
    assert demand_for(sharing, UNKNOWN).gpu_utilisation_frac == 0.5
    assert demand_for(sharing, predicted).gpu_utilisation_frac == 0.2
    assert demand_for(whole, predicted).gpu_utilisation_frac == 1.0


def test_importing_the_prior_loads_no_numerical_library():
    code = (
        "import sys, headway.estimate.prior, headway.estimate.features;"
        "print({'numpy', 'scipy', 'sklearn', 'pandas'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_only_a_run_that_may_be_stopped_by_itself_may_borrow() -> None:
    assert demand_for(job(preemptible=True), UNKNOWN).may_borrow
    assert not demand_for(job(), UNKNOWN).may_borrow
    two = job(preemptible=True, resources={"nodes": 2})
    assert not demand_for(two, UNKNOWN).may_borrow
