"""One line a round, which headway reads and a person can read too."""

import json


def report(iteration: int, total: int, **metrics: float) -> None:
    """Print headway's progress line; needs nothing but `print`."""
    point = {"iteration": iteration, "total": total, "metrics": metrics}
    print(json.dumps({"headway": point}), flush=True)
