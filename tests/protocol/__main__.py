"""Explores the lease protocol: `make protocol`; `PROTOCOL=--full make protocol` for the largest.

Prints the number of states of each size, and by which steps each broken rule is found.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

from tests.protocol.explore import explore
from tests.protocol.mutations import MUTATIONS
from tests.protocol.values import UNLIMITED, Rules

SIZES = {
    "1 node, 1 run, Prefect": Rules(nodes=1, runs=1),
    "2 nodes, 1 run": Rules(nodes=2, runs=1, told_to_prefect=False),
    "2 nodes, 1 run, Prefect": Rules(nodes=2, runs=1, faults=3),
    "2 nodes, 2 runs": Rules(nodes=2, runs=2, told_to_prefect=False, faults=2),
    "1 node with room for 2, 3 runs": Rules(
        nodes=1, runs=3, capacity=2, told_to_prefect=False, faults=1
    ),
    "3 nodes, 3 runs": Rules(nodes=3, runs=3, told_to_prefect=False, faults=0),
}
FULL = {
    "2 nodes, 1 run, Prefect": Rules(nodes=2, runs=1),
    "2 nodes, 2 runs": Rules(nodes=2, runs=2, told_to_prefect=False, faults=3),
    "3 nodes, 3 runs": Rules(nodes=3, runs=3, told_to_prefect=False, faults=1),
}


def main() -> int:
    """Explore, print, and say by the exit status whether all is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the largest sizes: minutes")
    asked = parser.parse_args()
    return max(*sizes(FULL if asked.full else SIZES), *mutations())


def sizes(chosen: dict[str, Rules]) -> Iterator[int]:
    """One row for each size; 1 where an invariant is broken or a state has no way to an end."""
    print("| size, two attempts each | faults | states | steps | depth | no end | broken | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name, rules in chosen.items():
        begun = time.perf_counter()
        found = explore(rules, tell=_progress(name))
        faults = "any number" if rules.faults == UNLIMITED else f"at most {rules.faults}"
        faults = faults if rules.faults else "none, but messages are late and renewals fail"
        print(
            f"\r| {name} | {faults} | {found.states:,} | {found.steps:,} | {found.depth} "
            f"| {found.stuck} | {found.violation or 'nothing'} "
            f"| {time.perf_counter() - begun:.0f} |",
            flush=True,
        )
        print("\n".join(found.trace), end="")
        yield int(bool(found.violation or found.stuck))


def mutations() -> Iterator[int]:
    """One row for each broken rule; 1 where nothing shows it."""
    print("\n| rule that is broken | found by | after | states |\n|---|---|---|---|")
    for name, rules in MUTATIONS.items():
        found = explore(rules)
        shown = found.violation or (f"{found.stuck} states without an end" if found.stuck else "")
        after = ", ".join(found.trace) or "–"
        print(f"| {name} | {shown or '**NOTHING**'} | {after} | {found.states:,} |", flush=True)
        yield int(not shown)


def _progress(name: str) -> Callable[[int, int], None]:
    def tell(depth: int, states: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{name}: depth {depth}, {states:,} states", end="", file=sys.stderr)

    return tell


if __name__ == "__main__":
    sys.exit(main())
