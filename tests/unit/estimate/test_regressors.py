from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.utils.estimator_checks import estimator_checks_generator

from headway.client.frames import TRACES, frame
from headway.estimate.estimator import Estimators
from headway.estimate.features import Configuration, from_trace
from headway.estimate.frame import configurations_of, frame_of
from headway.estimate.physics import shipped
from headway.estimate.regressors import (
    Estimator,
    GpuMemory,
    HostMemory,
    Runtime,
    SlowDown,
    TraceFeatures,
)
from headway.model.trace import Trace

RNG = np.random.default_rng(0)
RUNS = [
    Trace(
        network, gpu, 1, batch, epochs=float(epochs), dataset_bytes=batch * 10**6, recipe=network,
        runtime_s=base * batch * epochs * speed * float(np.exp(RNG.normal(0, 0.03))),
        host_peak_bytes=int(1e9 + base * batch * 3e8), metrics={"--depth": float(epochs)},
    )
    for network, base in (("resnet50", 1.0), ("lm", 3.0))
    for gpu, speed in (("v100", 1.0), ("k80", 4.0))
    for batch in (8, 16, 32, 64)
    for epochs in (1, 3, 10)
]  # fmt: skip


CHECKS = [
    (estimator, check)
    for each in (
        Runtime(max_iter=2),
        Runtime(unit="run", max_iter=2),
        SlowDown(max_iter=2),
        HostMemory(),
        GpuMemory(),
    )
    for estimator, check in estimator_checks_generator(each, mark=None)
    # Needs another array library than NumPy; whoever names none with SCIPY_ARRAY_API skips it.
    if "array_api" not in str(check)
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_an_estimator_is_scikit_learns(estimator, check):
    check(estimator)


def table():
    """The runs as `headway.traces()` has them."""
    rows = [
        {name: getattr(t, name) for name in TRACES if hasattr(t, name)} | t.metrics for t in RUNS
    ]
    return frame(rows, TRACES, more=True)


def model(**options):
    return Estimator([("features", TraceFeatures()), ("runtime", Runtime(**options))])


def test_a_frame_gives_back_what_it_was_made_of():
    known = [
        shipped().complete(replace(from_trace(t), framework="torch", team="A", recipe=f"R{i % 3}"))
        for i, t in enumerate(RUNS)
    ]
    known.append(Configuration(network="other", recipe="Other"))
    assert configurations_of(frame_of(known)) == known


def test_splits_and_cross_validation_are_scikit_learns():
    X = table()
    y = X["runtime_s"].to_numpy(dtype=float)
    by_recipe = X["recipe"].str.cat(X["gpu_type"])
    said = cross_val_predict(model(), X, y, groups=by_recipe, cv=GroupKFold(4))
    assert np.median(np.abs(np.log(said / y))) < 1.0, "the recipe on another GPU tells of this one"


def test_what_was_measured_is_no_feature():
    """A frame of traces has times and peaks beside what was known before."""
    seen = TraceFeatures().transform(table())
    assert {"runtime_s", "host_peak_bytes", "exit", "owner"}.isdisjoint(seen.columns)
    assert {"gpu_flops_per_s", "params", "--depth"} <= set(seen.columns)


def test_text_may_be_categories_and_what_is_unknown_nan():
    X = table()
    y = X["runtime_s"].to_numpy(dtype=float)
    plain = model().fit(X, y)
    coded = X.astype(dict.fromkeys(("network", "gpu_type", "recipe"), "category"))
    assert clone(plain).fit(coded, y).predict(coded) == pytest.approx(plain.predict(X))
    holed = X.assign(epochs=X["epochs"].where(X.index % 5 != 0))
    assert np.isfinite(clone(plain).fit(holed, y).predict_quantiles(holed)).all()


def test_quantiles_rise_and_the_middle_one_is_the_prediction():
    X = table()
    fitted = model().fit(X, X["runtime_s"].to_numpy(dtype=float))
    said = fitted.predict_quantiles(X, (0.05, 0.1, 0.5, 0.9, 0.99))
    assert (np.diff(said, axis=1) > 0).all()
    assert said[:, 2] == pytest.approx(fitted.predict(X))


def test_the_site_predicts_by_what_these_have_learnt():
    site = Estimators.fit(RUNS, fitted_at=datetime(2026, 1, 2, tzinfo=UTC))
    X = table()
    own = model().fit(X, X["runtime_s"].to_numpy(dtype=float))
    said = site.predict([from_trace(t) for t in RUNS])
    assert own.predict(X) == pytest.approx([each.runtime_s for each in said], rel=0.02)


@pytest.mark.parametrize("wrong", [0.0, -1.0])
def test_no_time_is_below_zero(wrong):
    X = table()
    y = X["runtime_s"].to_numpy(dtype=float).copy()
    y[3] = wrong
    with pytest.raises(ValueError, match="above 0"):
        model().fit(X, y)


def test_a_peak_that_was_not_enough_is_a_lower_bound():
    X = TraceFeatures().transform(table())
    y = np.array([t.host_peak_bytes for t in RUNS])
    least = HostMemory().fit(X, y).predict(X)
    killed = np.arange(len(y)) % 2 == 0
    y[killed] //= 2
    told = HostMemory().fit(X, y, lower_bound=killed).predict(X)
    assert told == pytest.approx(least, rel=0.1)
    taken_for_peaks = HostMemory().fit(X, y).predict(X)
    assert taken_for_peaks.mean() < 0.95 * told.mean()


def pairs():
    """Programs that take turns on a GPU: each waits for as long as the other's step takes."""
    steps_s = {"cnn": 1.0, "lm": 2.0, "a3c": 0.5, "gan": 1.5, "bert": 3.0}
    rows = pd.DataFrame(
        [
            (a, b, batch, other)
            for a in steps_s
            for b in steps_s
            for batch in (8, 32)
            for other in (8, 32)
        ],
        columns=["network", "beside", "batch_size", "beside_batch_size"],
    ).assign(gpu_type="v100")
    own_s, others_s = (
        rows[name].map(steps_s) * rows[batch] / 8
        for name, batch in (("network", "batch_size"), ("beside", "beside_batch_size"))
    )
    return rows, (1 + others_s / own_s).to_numpy()


def test_how_a_pair_that_was_never_measured_slows_each_other_is_told():
    X, y = pairs()
    each = ["".join(sorted(pair)) for pair in zip(X["network"], X["beside"], strict=True)]
    said = cross_val_predict(SlowDown(), X, y, groups=each, cv=GroupKFold(5))
    assert np.abs(y / said - 1).mean() < 0.1, "what they did beside others tells of it"
    assert np.abs(y / np.median(y) - 1).mean() > 0.5


def test_nobody_is_faster_beside_another():
    X, y = pairs()
    never = SlowDown().fit(X, np.full(len(y), 1.0) + 0.001 * (y > 2)).predict_quantiles(X)
    assert never.min() == 1.0
    assert (np.diff(never, axis=1) >= 0).all()
