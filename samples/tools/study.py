"""An Optuna study whose trials are runs, pruned by the loss that headway reads."""

from pathlib import Path

import optuna

from headway import Client, Job
from headway.bridges.trials import followed


def objective(trial: optuna.Trial) -> float:
    """One run at a learning rate."""
    command = ["python", "train.py", "--lr", str(trial.suggest_float("lr", 0.01, 1.2))]
    code = Path(__file__).parents[1] / "chain"
    with Client() as client:
        job = Job(name="trial", python="3.11", workdir=str(code), command=command)
        return followed(trial, client.submit(job), "loss", client)


study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=100.0))
study.optimize(objective, n_trials=2)
print(len(study.trials))
