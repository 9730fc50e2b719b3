"""Processes that race for the last slot of a node.

    python benchmarks/races.py [--racers 8] [--rounds 10000]

Prints how often the node was overcommitted: never, while its row is locked.
"""

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import postgresql  # noqa: E402 - from the project's root
from tests.support.postgresql import new_database  # noqa: E402
from tests.support.race import race  # noqa: E402


def main() -> None:
    """Race, count, print a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--racers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10_000)
    asked = parser.parse_args()
    print("| racers | rounds | overcommitted | nobody won | rounds/s |")
    print("|---|---|---|---|---|", flush=True)
    with postgresql.server() as server:
        show(new_database(server), asked)


def show(url: str, asked: argparse.Namespace) -> None:
    """One race, one row."""
    begun = time.perf_counter()
    result = race(url, racers=asked.racers, rounds=asked.rounds)
    took = time.perf_counter() - begun
    print(
        f"| {asked.racers} | {result.rounds} | {result.overcommitted} "
        f"| {result.without_winner} | {result.rounds / took:.0f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
