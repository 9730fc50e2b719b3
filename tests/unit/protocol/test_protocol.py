"""The model of the lease protocol: every state is well, and every broken rule shows."""

import pytest

from tests.protocol.explore import explore
from tests.protocol.mutations import MUTATIONS
from tests.protocol.values import NEVER, Rules

SMALL = {
    "one node, any number of faults": Rules(nodes=1, runs=1),
    "one node that nobody removes": Rules(nodes=1, runs=1, remove_after=NEVER),
    "two nodes": Rules(nodes=2, runs=1, faults=1, told_to_prefect=False),
    "two nodes, two runs": Rules(nodes=2, runs=2, attempts=1, faults=0, told_to_prefect=False),
}


@pytest.mark.parametrize("size", SMALL)
def test_every_state_is_well_and_has_a_way_to_an_end(size: str) -> None:
    found = explore(SMALL[size])
    assert found.states > 1_000
    assert (found.violation, found.stuck) == ("", 0)


@pytest.mark.parametrize("broken", MUTATIONS)
def test_a_broken_rule_shows(broken: str) -> None:
    found = explore(MUTATIONS[broken])
    assert found.violation or found.stuck


def test_the_sizes_that_show_the_broken_rules_are_well_without_them() -> None:
    """So what is found is the broken rule, not the size."""
    assert explore(Rules(nodes=2, runs=1, faults=2, told_to_prefect=False)).violation == ""
