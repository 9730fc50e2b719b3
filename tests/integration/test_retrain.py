"""The nightly refit, on traces and through its deployment."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headway.estimate import store
from headway.estimate.evaluation.retrain import retrain
from headway.estimate.features import from_trace
from headway.model.trace import Trace
from tests.support.site import LiveSite, wait_for

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


def test_without_enough_traces_the_prior_stays(tmp_path: Path) -> None:
    done = retrain(traces(3), tmp_path, fitted_at=NOON)
    assert (done.version, done.verdict.promoted) == (0, False)
    assert "3 usable traces" in done.verdict.reason


def test_the_first_to_learn_is_used_and_a_worse_one_is_not(tmp_path: Path) -> None:
    first = retrain(traces(60), tmp_path, fitted_at=NOON)
    assert (first.version, first.verdict.promoted) == (1, True)
    (unseen,) = traces(61)[-1:]
    said = store.load(tmp_path).predict([from_trace(unseen)])[0].runtime_s
    assert said is not None
    assert unseen.runtime_s is not None
    assert math.isclose(said, unseen.runtime_s, rel_tol=0.2)
    # The same traces again: nothing to win, so the champion keeps its place.
    again = retrain(traces(60), tmp_path, fitted_at=NOON)
    assert (again.version, again.verdict.promoted) == (1, False)


def test_a_site_that_became_slower_is_learnt(tmp_path: Path) -> None:
    retrain(traces(60), tmp_path, fitted_at=NOON)
    changed = retrain(traces(60, slow=3.0), tmp_path, fitted_at=NOON)
    assert (changed.version, changed.verdict.promoted) == (2, True)


@pytest.mark.prefect
def test_the_nightly_deployment_runs(process_site: LiveSite) -> None:
    run_id = process_site.start("retrain-estimators/nightly")
    assert process_site.ended(run_id)["type"] == "COMPLETED"
    deployment = process_site.call("GET", "deployments/name/retrain-estimators/nightly")
    assert [each["schedule"]["cron"] for each in deployment["schedules"]] == ["0 2 * * *"]
    wait_for(
        lambda: "estimators" in process_site.artifacts(run_id),
        lambda: "no report artifact",
    )
