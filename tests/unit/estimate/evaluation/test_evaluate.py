from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from benchmarks.held_out import Rows, hold_out, model_of
from headway.estimate.evaluation.evaluate import score
from headway.estimate.physics import shipped
from headway.estimate.trace_files import parse
from headway.model.trace import Trace

GAVEL = Path(__file__).parents[3] / "data" / "runtime-gavel.csv"


@pytest.fixture(scope="module")
def gavel():
    return parse(GAVEL.read_bytes(), "runtime-gavel.csv", "gavel").traces


def held_out(traces, **options):
    rows, left_out = Rows.of(traces).believable(shipped(), 0)
    held, _ = hold_out(model_of(shipped(), 0), rows, shipped(), **options)
    return score(held), left_out


def test_every_gavel_row_is_a_row(gavel):
    assert len(gavel) == 405
    assert len(Rows.of(gavel).seconds) == 405


def test_the_champion_is_near_real_rows_that_it_has_not_seen(gavel):
    single = [t for t in gavel if t.nodes == 1 and t.network in {"lm", "transformer"}]
    assert held_out(single, folds=4)[0].mean_relative_error < 0.15


class Remembers(BaseEstimator):
    """Notes which rows it is asked about."""

    asked: ClassVar = []

    def fit(self, X, y):
        return self

    def predict_quantiles(self, X):
        self.asked.append(X)
        return np.ones((len(X), 3))


def left_out(traces, column):
    """Values of *column* in each of the parts that are held out together."""
    Remembers.asked.clear()
    hold_out(Remembers(), Rows.of(traces), shipped(), leave_out=column)
    return [set(X[column]) for X in Remembers.asked]


def test_whole_groups_are_left_out(gavel):
    assert left_out(gavel, "gpu_type") == [{"k80"}, {"p100"}, {"v100"}]


@pytest.mark.parametrize(
    ("column", "one", "other"),
    [
        ("gpu_type", ("h100", "NVIDIA H100 80GB HBM3"), ("NVIDIA H100 PCIe",)),
        ("network", ("ResNet-50", "resnet_50"), ("resnet18",)),
    ],
)
def test_two_spellings_of_one_thing_are_left_out_together(column, one, other):
    names = (*one, *other)
    known = {"network": "n", "gpu_type": "v100"}
    traces = [
        Trace(**{**known, column: name}, gpus=1, batch_size=8, iteration_s=1.0) for name in names
    ]
    found = {frozenset(each) for each in left_out(traces, column)}
    assert found == {frozenset(n.lower() for n in each) for each in (one, other)}


def test_no_row_is_predicted_by_a_model_that_saw_it():
    rng_free = [Trace("n", "v100", 1, b, iteration_s=b / 100) for b in range(1, 41)]
    odd = Trace("n", "v100", 1, 41, iteration_s=50.0)
    got, _ = held_out([*rng_free, odd], folds=5)
    assert got.coverage_80_frac < 1.0


def test_a_broken_row_is_named_and_is_not_the_error_of_all(gavel):
    single = [t for t in gavel if t.nodes == 1 and t.network == "lm"]
    broken = replace(single[7], iteration_s=single[7].iteration_s * 1e-6)
    got, left_out = held_out([*single[:7], broken, *single[8:]], folds=3)
    assert len(left_out) == 1
    assert f"{broken.iteration_s:.3g} s for one iteration" in left_out[0]
    assert got.mean_relative_error < 1.0
