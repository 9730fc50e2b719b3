"""The nightly refit, on traces."""

import math
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.estimate import store
from headway.estimate.evaluation.retrain import retrain
from headway.estimate.features import Configuration, from_trace
from headway.model.trace import Beside, Trace

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def traces(count: int, *, slow: float = 1.0) -> list[Trace]:
    """Runs whose time grows with their rows and epochs."""
    return [
        Trace(
            network="boosting",
            gpu_type="cpu",
            gpus=0,
            batch_size=None,
            runtime_s=slow * (2 + epochs * rows / 1e6),
            epochs=float(epochs),
            dataset_samples=rows,
            dataset_bytes=rows * 40,
            recipe="boosting",
            started_at=NOON + timedelta(minutes=number),
            run_id=f"run-{slow}-{number}",
        )
        for number, (rows, epochs) in enumerate(
            [(10_000 * (1 + i % 10), 10 + 10 * (i % 7)) for i in range(count)]
        )
    ]


@pytest.fixture(scope="module")
def refit_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models after the first refit, not to be changed."""
    models = tmp_path_factory.mktemp("models")
    first = retrain(traces(60), models, fitted_at=NOON, clock=SystemClock())
    assert (first.version, first.verdict.promoted) == (1, True)
    return models


@pytest.fixture
def learnt(refit_once: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return shutil.copytree(refit_once, tmp_path / "models")


def test_without_enough_traces_the_prior_stays(tmp_path: Path) -> None:
    done = retrain(traces(3), tmp_path, fitted_at=NOON, clock=SystemClock())
    assert (done.version, done.verdict.promoted) == (0, False)
    assert "3 usable traces" in done.verdict.reason


def test_the_first_to_learn_is_used_and_a_worse_one_is_not(learnt: Path) -> None:
    (unseen,) = traces(61)[-1:]
    said = store.load(learnt).predict([from_trace(unseen)])[0].runtime_s
    assert said is not None
    assert unseen.runtime_s is not None
    assert math.isclose(said, unseen.runtime_s, rel_tol=0.2)
    # The same traces again: nothing to win, so the champion keeps its place.
    again = retrain(traces(60), learnt, fitted_at=NOON, clock=SystemClock())
    assert (again.version, again.verdict.promoted) == (1, False)


def test_a_site_that_became_slower_is_learnt(learnt: Path) -> None:
    changed = retrain(traces(60, slow=3.0), learnt, fitted_at=NOON, clock=SystemClock())
    assert (changed.version, changed.verdict.promoted) == (2, True)


def test_poisoned_traces_do_not_take_the_place_of_what_was_learnt(learnt: Path) -> None:
    """An import in another unit: a quarter of what is new, then all of it, is a thousand times."""
    good = traces(60)
    for every in (4, 1):
        new = [poisoned(each) if i % every == 0 else each for i, each in enumerate(later(20))]
        refit = retrain([*good, *new], learnt, fitted_at=NOON, clock=SystemClock())
        assert (refit.version, refit.verdict.promoted) == (1, False), refit.verdict.reason
        assert furthest_off(learnt) < 1.2


def test_some_poisoned_traces_do_not_spoil_what_is_learnt_first(tmp_path: Path) -> None:
    mixed = [poisoned(each) if i % 20 == 7 else each for i, each in enumerate(traces(60))]
    assert retrain(mixed, tmp_path, fitted_at=NOON, clock=SystemClock()).verdict.promoted
    assert furthest_off(tmp_path) < 1.2


def poisoned(trace: Trace) -> Trace:
    assert trace.runtime_s is not None
    return replace(trace, runtime_s=1000 * trace.runtime_s)


def later(count: int) -> list[Trace]:
    """The same jobs on another day."""
    return [
        replace(each, started_at=NOON + timedelta(days=1, minutes=i), run_id=f"later-{i}")
        for i, each in enumerate(traces(count))
    ]


def furthest_off(models_dir: Path) -> float:
    """The largest factor between what is predicted and what is true, over every job."""
    jobs = traces(70)
    said = store.load(models_dir).predict([from_trace(each) for each in jobs])
    pairs = [
        (one.runtime_s or 0.0, each.runtime_s or 0.0) for one, each in zip(said, jobs, strict=True)
    ]
    return max(max(one / true, true / one) for one, true in pairs)


def test_a_refit_learns_of_pairs_and_keeps_them_with_its_version(tmp_path: Path) -> None:
    shared = [
        replace(t, gpu_type="v100", gpus=1, beside=(Beside("other", 8, "", 1.4 + 0.01 * (at % 3)),))
        for at, t in enumerate(traces(60))
    ]
    assert retrain(shared, tmp_path, fitted_at=NOON, clock=SystemClock()).verdict.promoted
    known = store.load(tmp_path).pairs
    assert known is not None
    own = Configuration(network="boosting", recipe="boosting", gpu_type="v100")
    beside = [replace(own, beside="other", beside_batch_size=8), replace(own, beside="boosting")]
    said, unknown = known.says(beside)
    assert said == pytest.approx(1.41, abs=0.02)
    assert unknown is None
