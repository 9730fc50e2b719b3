"""Explores the lease protocol: `make protocol`; `PROTOCOL=--full make protocol` for the largest.

Prints the number of states of each size, and by which steps each broken rule is found.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.protocol import election
from tests.protocol.election_search import explore_elections
from tests.protocol.explore import Explored, explore
from tests.protocol.mutations import MUTATIONS, OF_ELECTIONS
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
ELECTIONS = {
    "2 schedulers, 1 node, 1 run": election.Rules(nodes=1, runs=1, faults=2),
    "2 schedulers, 1 node, 2 runs": election.Rules(nodes=1, runs=2, faults=1),
    "2 schedulers, 2 nodes, 1 run": election.Rules(nodes=2, runs=1, faults=1, come_back=False),
}
FULL_ELECTIONS = {
    "3 schedulers, 1 node, 1 run": election.Rules(schedulers=3, nodes=1, runs=1, faults=2),
    "2 schedulers, 2 nodes, 2 runs": election.Rules(nodes=2, runs=2, faults=0),
    "2 schedulers, 1 node, 2 runs, more faults": election.Rules(nodes=1, runs=2, faults=2),
}


def main() -> int:
    """Explore, print, and say by the exit status whether all is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the largest sizes: minutes")
    asked = parser.parse_args()
    explored = sizes(FULL if asked.full else SIZES)
    elected = elections(FULL_ELECTIONS if asked.full else ELECTIONS)
    return max(*explored, *elected, *mutations())


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


def elections(chosen: dict[str, election.Rules]) -> Iterator[int]:
    """The same of who grants the leases."""
    print("\n| election and grants | faults | states | steps | depth | no end | broken | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name, rules in chosen.items():
        begun = time.perf_counter()
        found = explore_elections(rules)
        print(
            f"| {name} | at most {rules.faults} | {found.states:,} | {found.steps:,} "
            f"| {found.depth} | {found.stuck} | {found.violation or 'nothing'} "
            f"| {time.perf_counter() - begun:.0f} |",
            flush=True,
        )
        print("\n".join(found.trace), end="")
        yield int(bool(found.violation or found.stuck))


def mutations() -> Iterator[int]:
    """One row for each broken rule; 1 where nothing shows it."""
    print("\n| rule that is broken | found by | after | states |\n|---|---|---|---|")
    searches: list[tuple[str, Callable[[], Explored]]] = [
        *((name, partial(explore, rules)) for name, rules in MUTATIONS.items()),
        *((name, partial(explore_elections, rules)) for name, rules in OF_ELECTIONS.items()),
    ]
    for name, search in searches:
        found = search()
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
