"""Learns which flights arrive more than 15 minutes late.

Reads the CSV that $HEADWAY_DATA names, trains a histogram gradient boosting
classifier round by round on eleven months, validates on December, and leaves
model and metrics in $HEADWAY_OUTPUTS.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss, roc_auc_score

from samples.progress import report

LATE_MINUTES = 15
VALIDATION_MONTH = 12
CATEGORIES = ["carrier", "origin", "dest"]


def load(path: Path) -> tuple[pd.DataFrame, "pd.Series[bool]"]:
    """What is known at take-off, and whether the flight then arrived late."""
    flights = pd.read_csv(path, dtype=dict.fromkeys(CATEGORIES, "category"))
    flights["hour"] = flights["sched_dep_time"] // 100
    flights["weekday"] = pd.to_datetime(
        {"year": 2013, "month": flights["month"], "day": flights["day"]}
    ).dt.day_of_week
    late = flights["arr_delay"] > LATE_MINUTES
    return flights.drop(columns=["arr_delay", "day"]), late


def train(path: Path, outputs: Path, rounds: int, leaves: int, rate: float) -> dict[str, Any]:
    """Train, validate, save; the metrics."""
    features, late = load(path)
    held_out = features["month"] == VALIDATION_MONTH
    features = features.drop(columns="month")
    x, y = features[~held_out], late[~held_out]
    x_new, y_new = features[held_out], late[held_out]
    model = HistGradientBoostingClassifier(
        categorical_features="from_dtype",
        early_stopping=False,
        learning_rate=rate,
        max_leaf_nodes=leaves,
        random_state=13,
        warm_start=True,
    )
    loss = float("nan")
    for done in range(1, rounds + 1):
        model.set_params(max_iter=done)
        model.fit(x, y)
        loss = log_loss(y_new, model.predict_proba(x_new)[:, 1])
        report(done, rounds, loss=round(loss, 5))
    score = model.predict_proba(x_new)[:, 1]
    metrics = {
        "rows": len(x),
        "rounds": rounds,
        "validation_rows": len(x_new),
        "validation_log_loss": loss,
        "validation_auc": roc_auc_score(y_new, score),
        "late_frac": float(y_new.mean()),
    }
    outputs.mkdir(parents=True, exist_ok=True)
    joblib.dump(model, outputs / "model.joblib")
    (outputs / "metrics.json").write_text(json.dumps(metrics, indent=2))
    return metrics


def main() -> None:
    """Command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=40)
    arguments.add_argument("--leaves", type=int, default=31)
    arguments.add_argument("--rate", type=float, default=0.1)
    wanted = arguments.parse_args()
    data, outputs = Path(os.environ["HEADWAY_DATA"]), Path(os.environ["HEADWAY_OUTPUTS"])
    metrics = train(data, outputs, wanted.rounds, wanted.leaves, wanted.rate)
    print(json.dumps(metrics), flush=True)


if __name__ == "__main__":
    main()
