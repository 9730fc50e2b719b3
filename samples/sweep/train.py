"""Walks down a noisy parabola with a learning rate; needs nothing but Python."""

import argparse
import json
import random


def main() -> None:
    """Train, one line a step."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--lr", type=float, required=True)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--steps", type=int, default=20)
    wanted = asked.parse_args()
    noise = random.Random(wanted.seed)  # noqa: S311 - nothing secret is drawn
    x = 3.0
    for step in range(1, wanted.steps + 1):
        x -= wanted.lr * (2 * x + noise.gauss(0, 0.1))
        said = {"iteration": step, "total": wanted.steps, "metrics": {"loss": x * x}}
        print(json.dumps({"headway": said}))


if __name__ == "__main__":
    main()
