"""Random ways through the model, with what each step does to which run."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol.node_steps import (
    NODE_STEPS,
    after_tick,
    is_possible,
    may_tick,
    row_after_tick,
    row_may_tick,
)
from tests.protocol.run_steps import ANYWHERE, run_steps
from tests.protocol.values import FROZEN, UP, Rules, State, first_state

NO_RUN = -1
_WEIGHTS = {
    "power is lost": 0.02,
    "machine sleeps": 0.1,
    "guard dies": 0.1,
    "node remove": 0.2,
    "tick": 2.0,
    "user cancels": 0.1,
    "flow dies": 0.1,
    "renew": 0.3,
    "admit": 4.0,
    "give back": 1.5,
    "claim ends": 2.0,
}
"""Of what is not as likely as the rest: what ends a way early is rare."""
_STALE = 10.0
_OF_A_RUN = 0.85
"""Share of the steps that are a run's: the others are rarer in life, too."""


class Move(NamedTuple):
    """One step of a walk."""

    action: str
    run: int
    """`NO_RUN` for what happens to a node, or to all."""
    node: int
    lost: bool
    before: State
    after: State


def walk(rules: Rules, seed: int, length: int) -> Iterator[Move]:
    """A random way of *length* steps at most, the same for the same *seed*."""
    chance = random.Random(seed)
    state = first_state(rules)
    for _ in range(length):
        of_runs = list(_of_runs(state, rules))
        others = [*_of_nodes(state, rules), *_tick(state, rules)]
        moves = of_runs if of_runs and (chance.random() < _OF_A_RUN or not others) else others
        if not moves:
            return
        (move,) = chance.choices(moves, [_weight(each) for each in moves])
        yield move
        state = move.after


def _weight(move: Move) -> float:
    """Steps of those who have lost their lease are rare, and what the fences are for."""
    weight = _WEIGHTS.get(move.action, 1.0)
    if move.run == NO_RUN or move.node == ANYWHERE:
        return weight
    flow = move.before.rows[move.run].cells[move.node].flow
    late = flow is not None and not flow.holds and move.before.rows[move.run].lease is not None
    return weight * _STALE if late else weight


def _of_runs(state: State, rules: Rules) -> Iterator[Move]:
    held = [row.lease.node for row in state.rows if row.lease is not None]
    for run, row in enumerate(state.rows):
        for step in run_steps(row, rules):
            if step.node != ANYWHERE and not is_possible(step.action, state.nodes[step.node]):
                continue
            if step.action == "admit" and held.count(step.node) >= rules.capacity:
                continue
            rows = (*state.rows[:run], step.row, *state.rows[run + 1 :])
            after = state._replace(rows=rows)
            yield Move(step.action, run, step.node, step.lost, state, after)


def _of_nodes(state: State, rules: Rules) -> Iterator[Move]:
    for step in NODE_STEPS:
        for node, mode in enumerate(state.nodes):
            allowed = all(step.allows(row, node, rules) for row in state.rows)
            if allowed and step.possible(mode, rules):
                nodes = (*state.nodes[:node], step.node(mode), *state.nodes[node + 1 :])
                rows = tuple(step.row(row, node, rules) for row in state.rows)
                yield Move(step.action, NO_RUN, node, False, state, State(nodes, rows))


def _tick(state: State, rules: Rules) -> Iterator[Move]:
    due = (
        not row_may_tick(row, node, rules)
        for row in state.rows
        for node, mode in enumerate(state.nodes)
        if mode.mode == UP
    )
    if all(map(may_tick, state.nodes)) and not any(due):
        asleep = tuple(node.mode == FROZEN for node in state.nodes)
        rows = tuple(row_after_tick(row, asleep, rules) for row in state.rows)
        after = State(tuple(map(after_tick, state.nodes)), rows)
        yield Move("tick", NO_RUN, -1, False, state, after)
