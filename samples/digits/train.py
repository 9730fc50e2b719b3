"""Trains a small neural network on scikit-learn's own digits; a few seconds.

Leaves its metrics in $HEADWAY_OUTPUTS.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from samples.progress import report


def main() -> None:
    """Train, one epoch a line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--epochs", type=int, default=30)
    arguments.add_argument("--hidden", type=int, default=64)
    wanted = arguments.parse_args()

    pixels, digits = load_digits(return_X_y=True)
    x, x_new, y, y_new = train_test_split(pixels / 16, digits, random_state=13)
    model = MLPClassifier(hidden_layer_sizes=(wanted.hidden,), random_state=13)
    for epoch in range(1, wanted.epochs + 1):
        model.partial_fit(x, y, classes=np.arange(10))
        report(epoch, wanted.epochs, loss=round(model.loss_, 5))

    outputs = Path(os.environ["HEADWAY_OUTPUTS"])
    metrics = {"epochs": wanted.epochs, "accuracy": model.score(x_new, y_new)}
    (outputs / "metrics.json").write_text(json.dumps(metrics, indent=2))
    print(json.dumps(metrics), flush=True)


if __name__ == "__main__":
    main()
