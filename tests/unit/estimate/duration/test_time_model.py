from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.estimators import made_grid
from headway.estimate.duration.time_model import TimeModel
from headway.estimate.features import Configuration, from_trace
from headway.estimate.physics import shipped
from headway.estimate.trace_files import parse

GAVEL = Path(__file__).parents[3] / "data" / "runtime-gavel.csv"


@pytest.fixture(scope="module")
def rows():
    """The 120 measurements of two networks on single nodes of two GPU types."""
    traces = parse(GAVEL.read_bytes(), GAVEL.name, "gavel").traces
    got = [
        (shipped().complete(from_trace(t)), t.iteration_s)
        for t in traces
        if t.nodes == 1 and t.network in {"lm", "transformer", "resnet-18"} and t.gpu_type != "v100"
    ]
    return SimpleNamespace(
        configurations=[c for c, _ in got], seconds=np.array([s for _, s in got])
    )


@pytest.fixture(scope="module")
def model(rows):
    return TimeModel.fit(rows.configurations, rows.seconds)


def width(model, **changes):
    known = Configuration(network="lm", recipe="lm", gpu_type="p100", gpus=2, batch_size=20)
    ((low_s, _, high_s),) = model.quantiles([shipped().complete(replace(known, **changes))])
    return float(high_s / low_s)


@pytest.mark.parametrize(
    "new",
    [{"network": "unheard"}, {"gpu_type": "v100"}, {"gpu_type": "z9"}, {"gpus": 64, "nodes": 8}],
)
def test_an_interval_widens_with_what_is_new(model, new):
    assert width(model, **new) > 1.5 * width(model)


@pytest.mark.parametrize("new", [{"network": "unheard"}, {"gpu_type": "v100"}, {"gpus": 4}])
def test_what_traces_had_one_of_alone_says_nothing_of_another(new):
    """A site of one GPU type was as sure of the next one as of its own."""
    alike = [
        shipped().complete(Configuration("lm", "k80", 1, batch_size=b, recipe="lm"))
        for b in (5, 10, 20, 40, 80) * 2
    ]
    seconds = np.array([c.batch_size / 100 for c in alike]) * np.tile([1.01, 0.99], 5)
    learnt = TimeModel.fit(alike, seconds)
    asked = shipped().complete(replace(alike[0], **new))
    ((low_s, _, high_s), (low, _, high)) = learnt.quantiles([asked, alike[0]])
    assert high_s / low_s > 1.5 * high / low


def test_of_a_variant_that_nobody_described_less_is_sure(model):
    described, variant = (
        model.quantiles(
            [shipped().complete(Configuration(network="lm", gpu_type=g, gpus=1, batch_size=80))]
        )[0]
        for g in ("rtx4090", "NVIDIA GeForce RTX 4090 Laptop GPU")
    )
    assert variant[1] == pytest.approx(described[1])
    widths = [high_s / low_s for low_s, _, high_s in (described, variant)]
    assert widths[1] > 1.02 * widths[0]


def test_a_faster_gpu_that_no_trace_had_is_predicted_faster(model, rows):
    asked = [
        shipped().complete(Configuration(network="lm", gpu_type=g, gpus=1, batch_size=80))
        for g in ("k80", "p100", "h100")
    ]
    k80, p100, h100 = model.quantiles(asked)[:, 1]
    assert h100 < p100 < k80


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_poisoned_traces_move_no_prediction_of_others_by_more_than_a_fifth(model, rows, factor):
    poisoned = rows.seconds.copy()
    hit = np.random.default_rng(3).choice(len(poisoned), 3, replace=False)
    poisoned[hit] *= factor
    after = TimeModel.fit(rows.configurations, poisoned)
    assert after.ignored == 3
    others = np.setdiff1d(np.arange(len(poisoned)), hit)
    asked = [rows.configurations[i] for i in others]
    moved = np.abs(np.log(after.quantiles(asked)[:, 1] / model.quantiles(asked)[:, 1]))
    assert np.exp(moved.max()) < 1.2
    assert np.exp(np.median(moved)) < 1.02


def test_no_honest_trace_is_ignored(model):
    assert model.ignored == 0


def test_the_same_traces_and_seed_give_the_same_model(model, rows):
    again = TimeModel.fit(rows.configurations, rows.seconds)
    asked = rows.configurations[:20]
    assert (again.quantiles(asked)[:, 1] == model.quantiles(asked)[:, 1]).all()


def test_few_or_identical_traces_do_not_stop_it():
    one = Configuration(network="a", gpu_type="v100", batch_size=8)
    model = TimeModel.fit([one] * 5, np.array([1.0, 1.1, 0.9, 1.0, 1.05]))
    ((low_s, median_s, high_s),) = model.quantiles([one])
    assert median_s == pytest.approx(1.0, rel=0.1)
    assert low_s < 1.0 < high_s


FIRST_OF_A_SITE = [
    # One run each of several networks, whose iterations differ by a factor of thousands.
    ("transformerxlbase", "A100 80GB SXM4", 52, 0.0017),
    ("waveglow", "V100 16GB", 8, 0.00017),
    ("ncf", "Quadro RTX 8000", 5_000_000, 0.588),
    ("bert_base_squad", "A100 80GB SXM4", 172, 0.720),
    ("resnet50", "RTX 4090", 224, 0.311),
]


def test_networks_that_ran_once_contradict_nobody():
    asked = [
        shipped().complete(Configuration(network=n, recipe=n, gpu_type=g, batch_size=b))
        for n, g, b, _ in FIRST_OF_A_SITE
    ]
    seconds = np.array([s for *_, s in FIRST_OF_A_SITE])
    assert TimeModel.fit(asked, seconds).ignored == 0


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_among_eight_runs_of_a_network_a_poisoned_one_is_refused(rows, factor):
    chosen = [i for i, c in enumerate(rows.configurations) if c.network == "lm"][::3][:8]
    asked = [rows.configurations[i] for i in chosen]
    seconds = rows.seconds[chosen]
    assert TimeModel.fit(asked, seconds).ignored == 0
    poisoned = seconds.copy()
    poisoned[3] *= factor
    after = TimeModel.fit(asked, poisoned)
    assert after.ignored == 1
    said = after.quantiles([asked[3]])[0, 1]
    assert said == pytest.approx(seconds[3], rel=1.0)


def test_when_half_of_a_few_disagree_none_is_ignored():
    one = Configuration(network="a", gpu_type="v100", batch_size=8)
    assert TimeModel.fit([one] * 6, np.array([1.0, 1.0, 1.0, 500.0, 500.0, 500.0])).ignored == 0


def test_an_interval_holds_of_unseen_rows_what_it_promises_with_many_settings_and_few_repeats():
    """Coordinates that are learnt for each setting flattered themselves: 58 instead of 80 %."""
    inside = []
    for draw in range(3):
        traces = made_grid(260, draw)
        known = [shipped().complete(from_trace(t)) for t in traces]
        seconds = np.array([t.iteration_s for t in traces])
        learnt = TimeModel.fit(known[:140], seconds[:140])
        low_s, _, high_s = learnt.quantiles(known[140:]).T
        inside += list((low_s <= seconds[140:]) & (seconds[140:] <= high_s))
    assert 0.72 <= np.mean(inside) <= 0.9
