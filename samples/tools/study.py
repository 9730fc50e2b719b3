"""An Optuna study whose trials are runs, pruned by the loss that headway reads."""

from pathlib import Path

import optuna

from headway import Client, Job
from headway.bridges.trials import followed

JOB = {"python": "3.11", "workdir": str(Path(__file__).parents[1] / "chain")}


def objective(trial: optuna.Trial) -> float:
    """One run at a learning rate."""
    lr = trial.suggest_float("lr", 0.01, 1.2)
    job = Job(name="trial", command=["python", "train.py", "--lr", str(lr)], **JOB)
    with Client() as client:
        return followed(trial, client.submit(job), "loss", client)


if __name__ == "__main__":
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=100.0))
    study.optimize(objective, n_trials=2)
    print(len(study.trials))
