"""Boosts trees on scikit-learn's digits; XGBoost's own lines are what headway reads."""

import argparse
import os
from pathlib import Path

import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    """Train, one line a round."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=50)
    asked.add_argument("--depth", type=int, default=4)
    wanted = asked.parse_args()
    pixels, digits = load_digits(return_X_y=True)
    x, x_new, y, y_new = train_test_split(pixels, digits, random_state=13)
    train, test = xgboost.DMatrix(x, y), xgboost.DMatrix(x_new, y_new)
    given = {"objective": "multi:softprob", "num_class": 10, "max_depth": wanted.depth, "seed": 13}
    model = xgboost.train(
        given | {"eval_metric": "mlogloss"}, train, wanted.rounds, evals=[(test, "test")]
    )
    model.save_model(Path(os.environ["HEADWAY_OUTPUTS"]) / "model.json")


if __name__ == "__main__":
    main()
