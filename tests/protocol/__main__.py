"""Explores the lease protocol: `make protocol`; `PROTOCOL=--full make protocol` for the largest.

Prints the number of states of each size, and by which steps each broken rule is found.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from tests.protocol import election
from tests.protocol.explore import Explored, explore, explore_elections
from tests.protocol.mutations import MUTATIONS, OF_ELECTIONS
from tests.protocol.values import UNLIMITED, Rules

RulesT = TypeVar("RulesT", Rules, election.Rules)
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
    parser.add_argument("--full", action="store_true", help="the largest sizes: many minutes")
    asked = parser.parse_args()
    explored = sizes("size, two attempts each", FULL if asked.full else SIZES, explore)
    chosen = FULL_ELECTIONS if asked.full else ELECTIONS
    return max(*explored, *sizes("election and grants", chosen, explore_elections), *mutations())


def sizes(
    what: str, chosen: Mapping[str, RulesT], search: Callable[[RulesT], Explored]
) -> Iterator[int]:
    """One row for each size; 1 where an invariant is broken or a state has no way to an end."""
    print(f"\n| {what} | faults | states | steps | depth | no end | broken | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name, rules in chosen.items():
        begun = time.perf_counter()
        found = search(rules)
        faults = "any number" if rules.faults == UNLIMITED else f"at most {rules.faults}"
        faults = faults if rules.faults else "none, but messages are late and renewals fail"
        print(
            f"| {name} | {faults} | {found.states:,} | {found.steps:,} | {found.depth} "
            f"| {found.stuck} | {found.violation or 'nothing'} "
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


if __name__ == "__main__":
    sys.exit(main())
