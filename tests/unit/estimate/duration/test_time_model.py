from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.estimators import made_grid
from headway.estimate.duration.time_model import TimeModel
from headway.estimate.evaluation.evaluate import Rows
from headway.estimate.features import Configuration
from headway.estimate.physics import shipped
from headway.estimate.trace_files import parse

GAVEL = Path(__file__).parents[3] / "data" / "runtime-gavel.csv"


@pytest.fixture(scope="module")
def rows():
    """The 120 measurements of two networks on single nodes of two GPU types."""
    traces = parse(GAVEL.read_bytes(), GAVEL.name, "gavel").traces
    got = Rows.of(
        [
            t
            for t in traces
            if t.nodes == 1
            and t.network in {"lm", "transformer", "resnet-18"}
            and t.gpu_type != "v100"
        ]
    )
    return replace(got, configurations=[shipped().complete(c) for c in got.configurations])


@pytest.fixture(scope="module")
def model(rows):
    return TimeModel.fit(rows.configurations, rows.seconds)


def width(model, **changes):
    known = Configuration(network="lm", recipe="lm", gpu_type="p100", gpus=2, batch_size=20)
    forecast = model.forecast([shipped().complete(replace(known, **changes))])
    return float(forecast.high_s[0] / forecast.low_s[0])


@pytest.mark.parametrize(
    "new",
    [{"network": "unheard"}, {"gpu_type": "v100"}, {"gpu_type": "z9"}, {"gpus": 64, "nodes": 8}],
)
def test_an_interval_widens_with_what_is_new(model, new):
    assert width(model, **new) > 1.5 * width(model)


def test_of_a_variant_that_nobody_described_less_is_sure(model):
    described, variant = (
        model.forecast(
            [shipped().complete(Configuration(network="lm", gpu_type=g, gpus=1, batch_size=80))]
        )
        for g in ("rtx4090", "NVIDIA GeForce RTX 4090 Laptop GPU")
    )
    assert variant.median_s[0] == pytest.approx(described.median_s[0])
    widths = [float(f.high_s[0] / f.low_s[0]) for f in (described, variant)]
    assert widths[1] > 1.02 * widths[0]


def test_a_faster_gpu_that_no_trace_had_is_predicted_faster(model, rows):
    asked = [
        shipped().complete(Configuration(network="lm", gpu_type=g, gpus=1, batch_size=80))
        for g in ("k80", "p100", "h100")
    ]
    k80, p100, h100 = model.forecast(asked).median_s
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
    moved = np.abs(np.log(after.forecast(asked).median_s / model.forecast(asked).median_s))
    assert np.exp(moved.max()) < 1.2
    assert np.exp(np.median(moved)) < 1.02


def test_no_honest_trace_is_ignored(model):
    assert model.ignored == 0


def test_the_same_traces_and_seed_give_the_same_model(model, rows):
    again = TimeModel.fit(rows.configurations, rows.seconds)
    asked = rows.configurations[:20]
    assert (again.forecast(asked).median_s == model.forecast(asked).median_s).all()


def test_few_or_identical_traces_do_not_stop_it():
    one = Configuration(network="a", gpu_type="v100", batch_size=8)
    got = TimeModel.fit([one] * 5, np.array([1.0, 1.1, 0.9, 1.0, 1.05])).forecast([one])
    assert got.median_s[0] == pytest.approx(1.0, rel=0.1)
    assert got.low_s[0] < 1.0 < got.high_s[0]


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
    said = after.forecast([asked[3]]).median_s[0]
    assert said == pytest.approx(seconds[3], rel=1.0)


def test_when_half_of_a_few_disagree_none_is_ignored():
    one = Configuration(network="a", gpu_type="v100", batch_size=8)
    assert TimeModel.fit([one] * 6, np.array([1.0, 1.0, 1.0, 500.0, 500.0, 500.0])).ignored == 0


def test_an_interval_holds_of_unseen_rows_what_it_promises_with_many_settings_and_few_repeats():
    """Coordinates that are learnt for each setting flattered themselves: 58 instead of 80 %."""
    got = Rows.of(made_grid(260))
    known = [shipped().complete(c) for c in got.configurations]
    learnt = TimeModel.fit(known[:140], got.seconds[:140])
    said = learnt.forecast(known[140:])
    inside = (said.low_s <= got.seconds[140:]) & (got.seconds[140:] <= said.high_s)
    assert 0.7 <= inside.mean() <= 0.93
