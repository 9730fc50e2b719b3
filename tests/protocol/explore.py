"""Breadth-first search through every state of a model."""

from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

from tests.protocol import election, election_steps
from tests.protocol.model import Model
from tests.protocol.run_steps import Violation
from tests.protocol.values import Rules

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True)
class Explored:
    """What a search found."""

    states: int
    steps: int
    depth: int
    violation: str = ""
    trace: tuple[str, ...] = ()
    """The shortest way to the violation."""
    stuck: int = 0
    """States from which no end can be reached."""


def explore(rules: Rules) -> Explored:
    """Look at every state of the lease protocol; stop at the first that breaks something."""
    model = Model(rules)
    return search(model.first(), model.steps, model.is_over, model.broken)


def explore_elections(rules: election.Rules) -> Explored:
    """Look at every state of elections and grants; stop at the first step that must not be."""

    def steps(state: election.State) -> Iterable[tuple[str, election.State]]:
        return ((f"{s.action} {s.who}", s.state) for s in election_steps.steps(state, rules))

    return search(election.first_state(rules), steps, election.is_over, lambda _: "")


def search(
    first: State,
    steps: Callable[[State], Iterable[tuple[str, State]]],
    is_over: Callable[[State], bool],
    broken: Callable[[State], str],
) -> Explored:
    """Look at every state behind *first*.

    Args:
        first: The first one.
        steps: What may follow a state; raises `Violation` for what must never be possible.
        is_over: Whether a state is an end.
        broken: Which invariant a state breaks; empty for none.
    """
    numbers, states = {first: 0}, [first]
    came: list[tuple[int, str]] = [(-1, "")]
    """From which state each was reached first, and by which step."""
    sources, targets, ends = array("l"), array("l"), [0]
    """Every step; and how many states there were at the end of each level."""
    for number, state in enumerate(states):
        if number == ends[-1]:
            ends.append(len(states))
        try:
            if what := broken(state):
                raise Violation(what)
            for label, after in steps(state):
                if after not in numbers:
                    numbers[after] = len(states)
                    states.append(after)
                    came.append((number, label))
                sources.append(number)
                targets.append(numbers[after])
        except Violation as found:
            trace: list[str] = []
            while number:
                number, label = came[number]  # noqa: PLW2901
                trace.append(label)
            trace.reverse()
            return Explored(len(states), len(sources), len(ends) - 1, str(found), tuple(trace))
    over = [number for number, state in enumerate(states) if is_over(state)]
    stuck = len(states) - _with_an_end(len(states), sources, targets, over)
    return Explored(len(states), len(sources), len(ends) - 1, stuck=stuck)


def _with_an_end(states: int, sources: "array[int]", targets: "array[int]", over: list[int]) -> int:
    """How many of the states have a way to one of those that are *over*: gone back from these."""
    begin = np.full(len(over), states)  # one more, from which a way leads to each end
    edges = np.concatenate((begin, targets)), np.concatenate((over, sources))
    graph = coo_array((np.ones(len(edges[0]), dtype=np.int8), edges), (states + 1, states + 1))
    found = breadth_first_order(graph.tocsr(), states, return_predecessors=False)
    return len(found) - 1
