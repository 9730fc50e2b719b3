from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from benchmarks.estimator_charts import calibration, calibration_chart, cumulative_error
from headway.estimate.estimator import Estimators
from headway.estimate.evaluation.compare import compare, split
from headway.estimate.evaluation.evaluate import HeldOut
from headway.estimate.features import Configuration
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


def test_a_champion_without_a_model_of_the_unit_is_scored_by_what_the_site_says_then():
    ended = [
        Trace("c", "v100", 1, 8, runtime_s=60.0 * (1 + i % 3), epochs=float(1 + i % 3), recipe="c",
              owner="ann", team="t")
        for i in range(24)
    ]  # fmt: skip
    champion = Estimators.fit(TRACES, fitted_at=AT)
    challenger = Estimators.fit([*TRACES, *ended[:12]], fitted_at=AT)
    verdict = compare(champion, challenger, ended[12:])
    assert verdict.promoted
    assert verdict.champion.mean_relative_error > 10, "the prior's hour"
    assert verdict.challenger.mean_relative_error < 0.1


def honest(count, who="ann"):
    rng = np.random.default_rng(3)
    return [
        Trace(f"n{i % 4}", "v100", 1, 8, runtime_s=(10 + 20 * (i % 4)) * rng.normal(1, 0.02),
              epochs=2.0, dataset_samples=80 * (1 + i % 4), recipe=f"n{i % 4}", owner=who,
              team="t", started_at=AT + timedelta(hours=i), metrics={"--lr": float(i)})
        for i in range(count)
    ]  # fmt: skip


def test_one_members_claims_move_nobody_elses_estimate():
    liars = [
        Trace("fast", "v100", 1, 8, runtime_s=1.0, epochs=1e9, iterations=10**9, recipe="fast",
              owner="eve", team="t", started_at=AT + timedelta(hours=i))
        for i in range(40)
    ]  # fmt: skip
    asked = [Configuration("other", "v100", 1, batch_size=8, iterations=20, team="t", recipe="o")]
    before = Estimators.fit(honest(40), fitted_at=AT).predict(asked)[0]
    after = Estimators.fit([*honest(40), *liars], fitted_at=AT).predict(asked)[0]
    assert after.runtime_s == pytest.approx(before.runtime_s, rel=0.2)
    assert after.runtime_high_s < 3 * before.runtime_high_s


def test_who_was_predicted_well_is_not_predicted_badly_for_the_many_runs_of_another():
    mine, theirs = honest(40), honest(200, "eve")
    theirs = [replace(t, runtime_s=t.runtime_s * 100, network="e", recipe="e") for t in theirs]
    champion = Estimators.fit(mine[:30], fitted_at=AT)
    wrong = [replace(t, runtime_s=t.runtime_s * 4) for t in mine[:30]]
    challenger = Estimators.fit([*wrong, *theirs[:100]], fitted_at=AT)
    verdict = compare(champion, challenger, [*mine[30:], *theirs[100:]])
    assert not verdict.promoted
    assert "the error of runs of ann of t would go from" in verdict.reason


def held_of(spread):
    rng = np.random.default_rng(1)
    measured = np.exp(rng.normal(0, 0.1, 4000))
    half = np.exp(1.2816 * spread)
    one = np.ones(4000)
    return HeldOut(measured, np.column_stack([one / half, one, one * half]))


def test_calibration_finds_what_was_promised_or_less():
    levels = [0.2, 0.5, 0.8]
    assert calibration(held_of(0.1), levels) == pytest.approx(levels, abs=0.03)
    assert (calibration(held_of(0.03), levels) < np.array(levels) - 0.1).all()


def test_charts_are_png():
    held = {"gp": held_of(0.1), "other": held_of(0.2)}
    assert cumulative_error(held).startswith(b"\x89PNG")
    assert calibration_chart(held).startswith(b"\x89PNG")
