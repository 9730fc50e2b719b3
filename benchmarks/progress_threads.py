"""How well logs of public threads are read, tuned on and held out.

    PYTHONPATH=. python benchmarks/progress_threads.py [--show PART]

Reads the excerpts of tests/data/progress/threads and prints how many were read right,
wrong and not read, for the part that the parser was tuned on, the part that was held out, and
the part that was collected when both were read; --show names what was not read right.
"""

import argparse
from collections import Counter

from tests.support.threads import Verdict, judge, points_of, threads


def main() -> None:
    """Print the table."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--show", action="append", default=[], metavar="PART")
    show = ask.parse_args().show
    counts: dict[str, Counter[Verdict]] = {}
    for thread in threads():
        points = points_of(thread.log)
        verdict = judge(thread.truth, points)
        counts.setdefault(thread.part, Counter())[verdict] += 1
        if verdict is not Verdict.RIGHT and thread.part in show:
            said = "".join(f"\n    {p[1:4]} {dict(p.metrics)}"[:90] for p in points[-2:])
            print(f"{verdict.value:9} {thread.name}: {thread.truth}{said}")
    for part, count in sorted(counts.items()):
        total = count.total()
        shares = [f"{count[v]:3} {v.value} ({count[v] / total:.0%})" for v in Verdict]
        print(f"{part:9} {total:4} excerpts: {', '.join(shares)}")


if __name__ == "__main__":
    main()
