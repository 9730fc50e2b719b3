from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from benchmarks.estimator_charts import calibration, calibration_chart, cumulative_error
from headway.estimate.duration.time_model import Forecast
from headway.estimate.estimator import Estimators
from headway.estimate.evaluation.compare import compare, split
from headway.estimate.evaluation.evaluate import HeldOut
from headway.model.trace import Trace

AT = datetime(2026, 1, 2, tzinfo=UTC)
RNG = np.random.default_rng(0)
TRACES = [
    Trace(
        network, "v100", 1, batch, iteration_s=scale * batch * float(np.exp(RNG.normal(0, 0.03))),
        started_at=AT + timedelta(hours=i),
    )
    for i in range(12)
    for network, scale in (("a", 0.01), ("b", 0.03))
    for batch in (8, 32, 128)
]  # fmt: skip


@pytest.fixture(scope="module")
def parts():
    learn, held = split(TRACES)
    wrong = [replace(t, iteration_s=t.iteration_s * (1 + t.batch_size % 7)) for t in learn]
    good, bad = (Estimators.fit(t, fitted_at=AT) for t in (learn, wrong))
    return good, bad, held


def test_held_out_runs_are_the_newest_and_some_others():
    learn, held = split(TRACES, share=0.25)
    assert len(held) == 18
    assert len(learn) + len(held) == len(TRACES)
    assert TRACES[-1] in held
    assert min(t.started_at for t in held) < AT + timedelta(hours=9)


def test_only_the_better_is_promoted_and_says_by_how_much(parts):
    good, bad, held = parts
    assert compare(bad, good, held).promoted
    verdict = compare(good, bad, held)
    assert not verdict.promoted
    assert "against" in verdict.reason


def test_the_same_model_is_not_better(parts):
    good, _, held = parts
    assert not compare(good, good, held).promoted


def test_the_first_is_promoted_and_one_that_knows_nothing_is_not(parts):
    good, _, held = parts
    assert compare(None, good, held).promoted
    assert not compare(None, Estimators(), held).promoted


def test_a_handful_of_runs_promotes_nobody(parts):
    good, bad, held = parts
    verdict = compare(bad, good, held[:5])
    assert not verdict.promoted
    assert "too few" in verdict.reason


def held_of(spread):
    rng = np.random.default_rng(1)
    measured = np.exp(rng.normal(0, 0.1, 4000))
    half = np.exp(1.2816 * spread)
    one = np.ones(4000)
    return HeldOut(measured, Forecast(one, one / half, one * half), 0.0, 0.0)


def test_calibration_finds_what_was_promised_or_less():
    levels = [0.2, 0.5, 0.8]
    assert calibration(held_of(0.1), levels) == pytest.approx(levels, abs=0.03)
    assert (calibration(held_of(0.03), levels) < np.array(levels) - 0.1).all()


def test_charts_are_png():
    held = {"gp": held_of(0.1), "other": held_of(0.2)}
    assert cumulative_error(held).startswith(b"\x89PNG")
    assert calibration_chart(held).startswith(b"\x89PNG")
