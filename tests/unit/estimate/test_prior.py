import subprocess
import sys

import pytest

from headway.estimate.framework_memory import HostGuess, host_guess, known_framework
from headway.estimate.prior import demand_for
from headway.model.job import TrainingJob
from headway.model.lease import Basis, Sharing
from headway.model.node import Capacity, Node, NodeSpace
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
    demand = demand_for(asked, UNKNOWN, host_guess=HostGuess(GIB, "a guess"))
    assert (demand.host_memory_bytes, demand.host_memory_why) == (GIB, "a guess")
    by_rule = demand_for(job(dataset={"uri": "/d", "size": "1GiB"}), UNKNOWN)
    assert "ten times its data set" in by_rule.host_memory_why


def test_with_nothing_known_it_is_the_guess():
    for asked in (job(), job(dataset={"uri": "/d"})):
        demand = demand_for(asked, UNKNOWN, host_guess=HostGuess(7 * GIB, ""))
        assert (demand.host_memory_bytes, demand.host_memory_basis) == (7 * GIB, Basis.PRIOR)
    assert demand_for(job(dataset={"uri": "/d"}), UNKNOWN, GIB).host_memory_bytes == 10 * GIB


@pytest.mark.parametrize(
    ("image", "framework", "mib", "words"),
    [
        ("python:3.11", "", 1024, "nothing is known"),
        ("python:3.11", "numpy", 256, "numpy"),
        ("python:3.11", "scikit-learn", 512, "sklearn"),
        ("pytorch/pytorch:2.1-cpu", "", 1024, "torch"),
        ("tensorflow/tensorflow:2", "", 1024, "tensorflow"),
    ],
)
def test_a_job_of_which_nothing_is_known_begins_with_what_its_framework_takes(
    image, framework, mib, words
):
    asked = job(image=image, training={"framework": framework})
    found = host_guess(asked, 0, [space(128)])
    assert found.bytes_ == mib * MIB
    assert words in found.why


def test_of_several_frameworks_the_one_that_needs_most_counts():
    assert known_framework({"numpy", "torch", "sklearn", "os"}) == "torch"
    assert known_framework({"torch", "transformers"}) == "transformers"
    assert known_framework({"os", "sys"}) == ""


def space(memory_gib):
    return NodeSpace(Node("n", "gpu", Capacity(16, 512 * GIB)), memory_gib * GIB)


@pytest.mark.parametrize(
    ("gpus", "memory_gib", "guess_gib"),
    [(0, (16, 128), 1), (1, (16, 128), 4), (8, (16, 128), 32), (8, (16,), 16), (0, (1,), 1)],
)
def test_of_a_job_of_which_nothing_is_known_little_is_guessed(gpus, memory_gib, guess_gib):
    """A program of 0.2 GiB must not keep a node of two CPUs from everybody else."""
    assert host_guess(job(), gpus, [space(each) for each in memory_gib]).bytes_ == guess_gib * GIB


def test_without_any_node_it_is_the_floor():
    assert host_guess(job(), 0, []).bytes_ == GIB


def test_what_was_not_enough_before_is_at_least_doubled():
    killed = Prediction(host_above_bytes=6 * GIB)
    for guess, asked in ((4, 12), (16, 16)):
        demand = demand_for(job(), killed, host_guess=HostGuess(guess * GIB, ""))
        assert demand.host_memory_bytes == asked * GIB


def test_a_program_that_takes_next_to_nothing_may_be_changed_a_little():
    demand = demand_for(job(), Prediction(host_peak_bytes=700 * 1024))
    assert (demand.host_memory_bytes, demand.host_memory_basis) == (64 * MIB, Basis.PREDICTED)


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
