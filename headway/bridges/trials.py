"""Optuna's trials as runs, pruned by what headway reads of their metric.

    def objective(trial):
        run = client.submit(Job(..., command=[..., str(trial.suggest_float("lr", 1e-4, 1))]))
        return followed(trial, run, "loss")

Whatever the program logs its metric with, headway reads; the program knows nothing of Optuna. To
Optuna a metric that is NaN is the worst; a trial that ends with one fails.
"""

import math
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from headway.bridges.patience import patiently
from headway.client import Client
from headway.client.run import LOOK_EVERY_S, Run
from headway.clock import Clock, SystemClock
from headway.errors import HeadwayError, InvalidInput
from headway.model.progress import NAN

if TYPE_CHECKING:
    from optuna import Trial


def followed(
    trial: "Trial", run: Run, metric: str, client: Client | None = None, clock: Clock | None = None
) -> float:
    """Report *metric* of *run* to *trial* until the run ends; the last value.

    Args:
        trial: Is told each value once, at its iteration, or its epoch where none is told.
        run: Ended as soon as the study's pruner says so.
        metric: As the run's log, or its structured report, calls it.
        client: Of the site; that of `headway login` for None.
        clock: The machine's for None.

    Raises:
        optuna.TrialPruned: The pruner had the run ended.
        RunFailed: It ended otherwise than well.
        InvalidInput: It ended well, and told no such metric.
    """
    from optuna import TrialPruned  # noqa: PLC0415 - only who has a trial has Optuna

    values: dict[int, float] = {}
    names: set[str] = set()
    over = False
    with nullcontext(client) if client is not None else Client() as asked:
        try:
            while not over:
                over = run.over()
                points = _points(asked, run)
                names |= {name.removesuffix(NAN) for each in points for name in each["metrics"]}
                newest = _values(points, metric)
                for step in newest.keys() - values.keys():
                    trial.report(newest[step], step)
                values |= newest
                if not over and values and trial.should_prune():
                    raise TrialPruned
                if not over:
                    (clock or SystemClock()).sleep(LOOK_EVERY_S)
        except BaseException:  # whoever asks for the trial no more wants no run of it
            if not over:
                with suppress(HeadwayError):
                    run.cancel()
            raise
        run.wait()
    if not newest:
        had = ", ".join(sorted(names)) or "none"
        raise InvalidInput("metric", metric, f"name one that the run has told; it has told {had}")
    return newest[max(newest)]


def _points(client: Client, run: Run) -> list[dict[str, Any]]:
    return patiently(lambda: client.progress(run.run_id)["points"])


def _values(points: list[dict[str, Any]], metric: str) -> dict[int, float]:
    """*metric* of the newest attempt, by iteration, or by epoch where none is told."""
    found = {}
    for point in points:
        step = point["iteration"] if point["iteration"] is not None else point["epoch"]
        told = point["metrics"]
        if step is not None and (metric in told or metric + NAN in told):
            found[int(step)] = float(told.get(metric, math.nan))
    return found
