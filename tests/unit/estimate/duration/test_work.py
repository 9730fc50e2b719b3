import numpy as np
import pytest

from headway.estimate.duration.time_model import TimeModel
from headway.estimate.duration.work import share, work
from headway.estimate.features import Configuration, Unit
from headway.estimate.physics import shipped

NETWORKS = ("resnet18", "resnet34", "resnet50", "resnet101", "vgg11", "vgg16", "densenet121")


def configuration(network, batch_size, **facts):
    known = {"network": network, "recipe": network, "gpu_type": "v100", "batch_size": batch_size}
    return shipped().complete(Configuration(**known, **facts))


def work_s(*asked):
    return np.exp(work(asked, np.zeros(len(asked))))


def test_twice_the_samples_are_nearly_twice_the_work():
    small, large = work_s(configuration("vgg16", 64), configuration("vgg16", 128))
    assert 1.8 < large / small < 2.0


def test_a_network_of_many_layers_takes_time_whatever_its_arithmetic():
    small = {"flops": 1e6, "params": 1e6, "activations": 1e4}
    few, many = work_s(
        configuration("a", 1, layers=10.0, **small), configuration("a", 1, layers=200.0, **small)
    )
    assert many > 5 * few


def test_a_network_of_which_nothing_is_known_counts_by_its_usual_batch():
    asked = [configuration("nobody", 1_000_000)] * 2
    usual, twice = np.exp(work(asked, np.array([np.nan, 1.0])))
    assert usual == pytest.approx(work_s(configuration("resnet50", 32))[0], rel=0.1)
    assert 1.5 < twice / usual < 2.0


def test_times_tell_how_far_they_go_with_the_work():
    rng = np.random.default_rng(0)
    to_do = rng.normal(0, 1, 200)
    assert share(to_do, to_do + rng.normal(0, 0.1, 200)) == pytest.approx(1.0, abs=0.05)
    assert share(to_do, rng.normal(0, 1, 200)) < 0.2
    assert share(to_do[:2], to_do[:2]) < 0.7  # two rows prove little
    assert share(to_do, -to_do) == 0.0


@pytest.mark.parametrize("slower", [1e-4, 1e4])
def test_one_absurd_row_does_not_set_how_far_times_go_with_the_work(slower):
    rng = np.random.default_rng(0)
    to_do = rng.normal(0, 1, 40)
    log_s = to_do + rng.normal(0, 0.1, 40)
    for row in (to_do.argmin(), to_do.argmax()):
        wrong = log_s.copy()
        wrong[row] += np.log(slower)
        assert share(to_do, wrong) == pytest.approx(share(to_do, log_s), abs=0.05)
    claimed = np.append(to_do, np.log(1e12)), np.append(log_s, 0.0)
    assert share(*claimed) == pytest.approx(share(to_do, log_s), abs=0.1)


def test_work_is_expected_of_iterations_and_not_of_epochs_and_runs():
    """A large network may run for few iterations, and a small one for many."""
    rows = [configuration(n, b) for n in NETWORKS for b in (16, 32, 64, 128)]
    fits = {
        unit: TimeModel.fit(rows, 1.3 * work_s(*rows), iterations=2, unit=unit) for unit in Unit
    }
    assert fits[Unit.ITERATION].by_work > 0.8
    assert fits[Unit.EPOCH].by_work == fits[Unit.RUN].by_work == 0.0


@pytest.fixture(scope="module")
def model():
    rows = [configuration(n, b) for n in NETWORKS for b in (16, 32, 64, 128)]
    return TimeModel.fit(rows, 1.3 * work_s(*rows))


def test_a_network_that_no_trace_had_is_told_by_what_it_has_to_do(model):
    for network in ("resnet152", "densenet201"):
        asked = configuration(network, 64)
        assert model.quantiles([asked])[0, 1] == pytest.approx(1.3 * work_s(asked)[0], rel=0.25)


def test_of_a_network_without_facts_less_is_sure(model):
    described, nameless = model.quantiles(
        [configuration("resnet152", 64), configuration("nobody-knows-this", 64)]
    )
    assert nameless[2] / nameless[0] > 10 > 3 * described[2] / described[0]
