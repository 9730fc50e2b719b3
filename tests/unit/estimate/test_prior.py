import subprocess
import sys

from headway.estimate.prior import GPU_PRIOR_BYTES, HOST_FLOOR_BYTES, demand_for
from headway.model.job import TrainingJob
from headway.model.lease import Basis
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


def test_a_small_or_missing_data_set_gets_the_floor():
    assert demand_for(job(), UNKNOWN).host_memory_bytes == HOST_FLOOR_BYTES
    assert demand_for(job(), UNKNOWN, 1 * MIB).host_memory_bytes == HOST_FLOOR_BYTES


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


def test_gpu_memory_falls_to_the_rule_only_where_it_counts():
    assert demand_for(job(resources={"gpus": 1}), UNKNOWN).gpu_memory_bytes == GPU_PRIOR_BYTES
    assert demand_for(job(resources={"gpus": 0}), UNKNOWN).gpu_memory_bytes == 0
    whole = demand_for(job(resources={"gpus": 1, "sharing": "whole"}), UNKNOWN)
    assert whole.gpu_memory_bytes == 0


def test_a_shared_gpu_is_asked_for_as_far_as_it_is_used():
    sharing, whole = job(resources={"gpus": 1}), job(resources={"gpus": 1, "sharing": "whole"})
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
