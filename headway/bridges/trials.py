"""Optuna's trials as runs, pruned by what headway reads of their metric.

    def objective(trial):
        run = client.submit(Job(..., command=[..., str(trial.suggest_float("lr", 1e-4, 1))]))
        return followed(trial, run, "loss")

Whatever the program logs its metric with, headway reads; the program knows nothing of Optuna.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from headway.client import Client
from headway.client.run import LOOK_EVERY_S, Run
from headway.clock import Clock, SystemClock
from headway.errors import GatewayRefused, InvalidInput, SiteUnreachable, may_come_back

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

    told: dict[int, float] = {}
    names: set[str] = set()
    with nullcontext(client) if client is not None else Client() as asked:
        over = False
        while not over:
            over = run.over()
            try:
                points = asked.progress(run.run_id)["points"]
            except (SiteUnreachable, GatewayRefused) as error:
                if not may_come_back(error):
                    raise
                points, over = [], False
            for point in points:
                names |= point["metrics"].keys()
                step = point["iteration"] if point["iteration"] is not None else point["epoch"]
                if metric in point["metrics"] and step is not None and int(step) not in told:
                    told[int(step)] = float(point["metrics"][metric])
                    trial.report(told[int(step)], int(step))
            if not over and told and trial.should_prune():
                run.cancel()
                raise TrialPruned
            if not over:
                (clock or SystemClock()).sleep(LOOK_EVERY_S)
        run.wait()
    if not told:
        had = ", ".join(sorted(names)) or "none"
        raise InvalidInput("metric", metric, f"name one that the run has told; it has told {had}")
    return told[max(told)]
