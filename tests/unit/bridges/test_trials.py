"""Metrics of runs as Optuna is told them, in a real study."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import optuna
import pytest

from headway.bridges.trials import followed
from headway.client import Client
from headway.client.run import Run
from tests.ports.clock import FakeClock

Told = Sequence[Mapping[str, float]]


class Program:
    """A run, and its site: each look finds one point more."""

    run_id = "r"

    def __init__(self, told: Told) -> None:
        self.told, self.seen, self.cancelled = told, 0, False

    def over(self) -> bool:
        self.seen += 1
        return self.seen > len(self.told)

    def progress(self, _run: str) -> dict[str, Any]:
        shown = self.told[: self.seen]
        points = [{"iteration": at, "epoch": None, "metrics": m} for at, m in enumerate(shown)]
        return {"points": points}

    def wait(self) -> None:
        """It has ended well."""

    def cancel(self) -> None:
        self.cancelled = True


def _study(*programs: Program) -> optuna.Study:
    study = optuna.create_study(pruner=optuna.pruners.MedianPruner(n_startup_trials=1))
    left = iter(programs)

    def objective(trial: optuna.Trial) -> float:
        program = cast("Any", next(left))
        return followed(trial, cast("Run", program), "loss", cast("Client", program), FakeClock())

    study.optimize(objective, n_trials=len(programs))
    return study


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_a_trial_whose_metric_is_nan_is_pruned() -> None:
    good = Program([{"loss": 0.5}, {"loss": 0.25}])
    bad = Program([{"loss": 0.4}, {"loss.nan": 1.0}, {"loss.nan": 1.0}])
    study = _study(good, bad)
    assert [each.state.name for each in study.trials] == ["COMPLETE", "PRUNED"]
    assert study.best_value == 0.25
    assert math.isnan(study.trials[1].intermediate_values[1])
    assert bad.cancelled
    assert not good.cancelled


def test_a_trial_that_ends_with_nan_fails_and_never_is_the_best() -> None:
    study = _study(Program([{"loss.nan": 1.0}]), Program([{"loss": 0.5}]))
    assert [each.state.name for each in study.trials] == ["FAIL", "COMPLETE"]
    assert study.best_value == 0.5
