import pytest

from headway.estimate.features import Unit, from_job, from_trace, measured_times
from headway.estimate.options import numbers_of
from headway.model.job import TrainingJob
from headway.model.trace import Trace


def test_a_job_becomes_the_configuration_it_would_run_as():
    job = TrainingJob.model_validate(
        {
            "name": "t",
            "image": "python:3.11",
            "command": ["python", "train.py", "--depth", "8"],
            "dataset": {"uri": "/d", "size": "1KiB"},
            "resources": {"gpus": 2, "gpu_type": "V100"},
            "training": {"network": "ResNet-50", "batch_size": 32, "samples": 640, "epochs": 3},
        }
    )
    known = from_job(job, nodes=2)
    assert (known.gpus, known.nodes, known.gpu_type) == (4, 2, "v100")
    assert (known.network, known.dataset_bytes) == ("resnet-50", 1024)
    assert known.iterations_per_epoch() == 5
    assert known.iterations_in_all() == 15
    assert known.settings == {"--depth": 8.0}
    assert from_job(job, gpus=0).gpu_type == "cpu"


def test_times_that_follow_from_others_are_derived():
    trace = Trace("n", "v100", 2, 16, samples_per_s=64.0, dataset_samples=320)
    assert measured_times(trace) == {Unit.ITERATION: 0.5, Unit.EPOCH: 5.0}
    trace = Trace("n", "v100", 1, 16, runtime_s=100.0, iterations=50)
    assert measured_times(trace) == {Unit.ITERATION: 2.0, Unit.RUN: 100.0}


@pytest.mark.parametrize("ended", ["oom", "failed"])
def test_a_run_that_was_killed_early_is_not_a_fast_run(ended):
    assert measured_times(Trace("n", "v100", 1, 16, iteration_s=0.1, exit=ended)) == {}


def test_nothing_measured_afterwards_is_a_feature():
    slow, fast = (
        Trace("n", "v100", 1, 16, iteration_s=t, host_peak_bytes=int(t), metrics={"loss": t})
        for t in (1.0, 2.0)
    )
    assert from_trace(slow) == from_trace(fast)


def test_numbers_among_the_options_are_settings():
    command = ["python", "-u", "t.py", "--lr=0.1", "--depth", "8", "--name", "x", "--inf", "1e999"]
    assert numbers_of(command) == {"--lr": 0.1, "--depth": 8.0}
