"""How well logs of public threads are read, tuned on and held out.

    PYTHONPATH=. python benchmarks/progress_threads.py [--show]

Reads the excerpts of tests/data/progress/threads and prints how many were read right,
wrong and not, for the half the parser was tuned to and the half it was not; --show names
those that were not read right.
"""

import argparse
from collections import Counter

from tests.support.threads import Verdict, judge, points_of, threads


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--show", choices=("tuned", "held out", "both"))
    show = ask.parse_args().show
    counts: dict[str, Counter[Verdict]] = {"tuned": Counter(), "held out": Counter()}
    for thread in threads():
        half = "held out" if thread.is_held_out else "tuned"
        points = points_of(thread.log)
        verdict = judge(thread.truth, points)
        counts[half][verdict] += 1
        if verdict is not Verdict.RIGHT and show in {half, "both"}:
            said = "".join(
                f"\n    {p[1:4]} {dict(list(p.metrics.items())[:3])}" for p in points[-2:]
            )
            print(f"{verdict.value:9} {thread.name}: {thread.truth}{said}")
    for half, count in counts.items():
        total = count.total()
        shares = [f"{count[v]:3} {v.value} ({count[v] / total:.0%})" for v in Verdict]
        print(f"{half:9} {total:4} excerpts: {', '.join(shares)}")


if __name__ == "__main__":
    main()
