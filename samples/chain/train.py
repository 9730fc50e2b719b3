"""What each part of the chain runs: gradient descent on a parabola, at one learning rate."""

import argparse
import json
import os
from pathlib import Path

TARGET = 3.0


def main() -> None:
    """Descend, say how far it is, and write down where it ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    x = 0.0
    for step in range(1, asked.steps + 1):
        x -= asked.lr * 2 * (x - TARGET)
        told = {"iteration": step, "total": asked.steps, "metrics": {"loss": (x - TARGET) ** 2}}
        print(json.dumps({"headway": told}), flush=True)
    Path(os.environ["HEADWAY_OUTPUTS"], "x.json").write_text(json.dumps({"x": x}))


if __name__ == "__main__":
    main()
