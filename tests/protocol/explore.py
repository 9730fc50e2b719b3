"""Breadth-first search through every state of the model.

Runs are alike and nodes are alike: of states that differ only in how they are
numbered, one is looked at. A state is kept as numbers: one for the nodes and one for
each run, since the same few thousand runs' parts come back in millions of states.
"""

import itertools
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tests.protocol.invariants import broken, of_one_run
from tests.protocol.node_steps import (
    NODE_STEPS,
    after_tick,
    may_tick,
    row_after_tick,
    row_may_tick,
)
from tests.protocol.run_steps import ANYWHERE, Violation, is_over, run_steps, tidy
from tests.protocol.values import (
    FROZEN,
    GUARDED_AGAIN,
    UNLIMITED,
    UP,
    WOKEN,
    Node,
    Row,
    Rules,
    State,
    first_state,
)

_OF_THE_GUARD = frozenset({"renew", "guard kills"})
Code = tuple[int, ...]
"""Faults that may still come, the number of the nodes' part, and those of the runs' parts."""


@dataclass(frozen=True)
class Explored:
    """What a search found."""

    states: int
    steps: int
    depth: int
    complete: bool
    """Whether every state was reached; False where the search was told to stop before."""
    violation: str = ""
    trace: tuple[str, ...] = ()
    """The shortest way to the violation."""
    stuck: int = 0
    """States from which no end can be reached."""


class Model:
    """The model under *rules*, its parts numbered."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._rows: list[Row] = []
        self._row_ids: dict[Row, int] = {}
        self._nodes: list[tuple[Node, ...]] = []
        self._nodes_ids: dict[tuple[Node, ...], int] = {}
        self._orders = list(itertools.permutations(range(rules.nodes)))
        self.row_steps = cache(self._row_steps)
        self.row_in_orders = cache(self._row_in_orders)
        self.nodes_in_orders = cache(self._nodes_in_orders)
        self.row_tick = cache(self._row_tick)
        self.row_node_step = cache(self._row_node_step)
        self.row_amiss = cache(self._row_amiss)
        self.holder = cache(self._holder)

    def first(self) -> Code:
        """The number of the first state."""
        state = first_state(self.rules)
        rows = [self._row_id(row) for row in state.rows]
        return self.canonical(self.rules.faults, self._nodes_id(state.nodes), rows)

    def state(self, code: Code) -> State:
        """The state with this number."""
        return State(self._nodes[code[1]], tuple(self._rows[each] for each in code[2:]))

    def canonical(self, faults: int, nodes: int, rows: Sequence[int]) -> Code:
        """The one state that stands for all that differ in numbering alone."""
        turned = zip(self.nodes_in_orders(nodes), *map(self.row_in_orders, rows), strict=True)
        return min((faults, each[0], *sorted(each[1:])) for each in turned)

    def successors(self, code: Code) -> Iterator[tuple[str, Code]]:
        """Every step from a state, and the state that follows."""
        faults, nodes, *rows = code
        holders = [self.holder(row) for row in rows]
        last = -1
        for index, row in enumerate(rows):
            if row == last:
                continue  # its twin does the same
            last = row
            rest = rows[:index] + rows[index + 1 :]
            for label, after, admits, costs in self.row_steps(nodes, row):
                if costs > faults:
                    continue
                full = admits >= 0 and holders.count(admits) >= self.rules.capacity
                if full and self.rules.locked:
                    continue
                yield label, self.canonical(faults - costs, nodes, [*rest, after])
        yield from self._of_nodes(faults, nodes, rows)

    def _of_nodes(self, faults: int, nodes: int, rows: list[int]) -> Iterator[tuple[str, Code]]:
        modes = self._nodes[nodes]
        for number, step in enumerate(NODE_STEPS):
            costs = self._cost(step.is_fault)
            for node, mode in enumerate(modes):
                if costs > faults or not step.possible(mode, self.rules):
                    continue
                after = [self.row_node_step(number, node, row) for row in rows]
                if -1 in after:
                    continue
                new = self._nodes_id((*modes[:node], step.node(mode), *modes[node + 1 :]))
                if new != nodes or after != rows:
                    yield f"{step.action} {node}", self.canonical(faults - costs, new, after)
        if all(map(may_tick, modes)):
            after = [self.row_tick(nodes, row) for row in rows]
            if -1 not in after:
                older = self._nodes_id(tuple(map(after_tick, modes)))
                yield "tick", self.canonical(faults, older, after)

    def _cost(self, is_fault: bool) -> int:
        return int(is_fault and self.rules.faults < UNLIMITED)

    def _row_steps(self, nodes: int, row: int) -> list[tuple[str, int, int, int]]:
        found = []
        modes = self._nodes[nodes]
        for step in run_steps(self._rows[row], self.rules):
            node = modes[step.node] if step.node != ANYWHERE else None
            if node is not None and not is_possible(step.action, node):
                continue
            after = self._row_id(step.row)
            if after == row:
                continue
            label = f"{step.action} {step.node}{' (answer lost)' if step.lost else ''}"
            admits = step.node if step.action == "admit" else -1
            fault = self._cost(step.lost or step.action == "flow dies")
            found.append((label, after, admits, fault))
        return found

    def _row_in_orders(self, row: int) -> tuple[int, ...]:
        return tuple(self._row_in_order(order, row) for order in self._orders)

    def _row_in_order(self, order: tuple[int, ...], row: int) -> int:
        value = self._rows[row]
        lease = value.lease
        if lease is not None:
            lease = lease._replace(node=order.index(lease.node))
        cells = tuple(value.cells[old] for old in order)
        return self._row_id(value._replace(lease=lease, cells=cells))

    def _nodes_in_orders(self, nodes: int) -> tuple[int, ...]:
        found = self._nodes[nodes]
        return tuple(self._nodes_id(tuple(found[old] for old in order)) for order in self._orders)

    def _row_tick(self, nodes: int, row: int) -> int:
        modes, value = self._nodes[nodes], self._rows[row]
        for node, mode in enumerate(modes):
            if mode.mode == UP and not row_may_tick(value, node, self.rules):
                return -1
        asleep = tuple(mode.mode == FROZEN for mode in modes)
        return self._row_id(row_after_tick(value, asleep, self.rules))

    def _row_node_step(self, number: int, node: int, row: int) -> int:
        step, value = NODE_STEPS[number], self._rows[row]
        if not step.allows(value, node, self.rules):
            return -1
        return self._row_id(step.row(value, node, self.rules))

    def _row_amiss(self, nodes: int, row: int) -> bool:
        return bool(of_one_run(self._nodes[nodes], self._rows[row]))

    def _holder(self, row: int) -> int:
        lease = self._rows[row].lease
        return -1 if lease is None else lease.node

    def _row_id(self, row: Row) -> int:
        row = tidy(row, self.rules)
        found = self._row_ids.get(row)
        if found is None:
            found = self._row_ids[row] = len(self._rows)
            self._rows.append(row)
        return found

    def _nodes_id(self, nodes: tuple[Node, ...]) -> int:
        found = self._nodes_ids.get(nodes)
        if found is None:
            found = self._nodes_ids[nodes] = len(self._nodes)
            self._nodes.append(nodes)
        return found

    def amiss(self, code: Code) -> str:
        """Which invariant a state breaks; empty where all hold."""
        _, nodes, *rows = code
        held = [self.holder(row) for row in rows]
        crowded = any(held.count(node) > self.rules.capacity for node in range(self.rules.nodes))
        if crowded or any(self.row_amiss(nodes, row) for row in rows):
            state = self.state(code)
            return broken(state.nodes, state.rows, self.rules)
        return ""

    def is_over(self, code: Code) -> bool:
        """Whether every run has ended and nothing is left."""
        return all(is_over(self._rows[row], self.rules) for row in code[2:])


def is_possible(action: str, node: Node) -> bool:
    """Whether a step of a run can happen on a node that is so."""
    if node.mode == FROZEN:
        return False
    if action == "admit":
        return node.member
    return action not in _OF_THE_GUARD or node.mode in (UP, WOKEN, GUARDED_AGAIN)


def explore(
    rules: Rules, *, most: int = sys.maxsize, tell: Callable[[int, int], None] | None = None
) -> Explored:
    """Look at every state, or at the first *most*; stop at the first that breaks something.

    Args:
        rules: How large, and by which rules.
        most: States to look at.
        tell: Called with the depth and the number of states now and then.
    """
    model = Model(rules)
    first = model.first()
    numbers: dict[Code, int] = {first: 0}
    parents = array("q", [-1])
    sources, targets = array("l"), array("l")
    level, depth = [first], 0
    while level and len(numbers) < most:
        following: list[Code] = []
        for code in level:
            origin = numbers[code]
            try:
                for label, after in model.successors(code):
                    number = numbers.get(after)
                    if number is None:
                        number = numbers[after] = len(parents)
                        parents.append(origin)
                        following.append(after)
                        if found := model.amiss(after):
                            trace = (*_trace(model, numbers, parents, origin), label)
                            return _stopped(numbers, sources, depth, found, trace)
                    sources.append(origin)
                    targets.append(number)
            except Violation as violation:
                trace = _trace(model, numbers, parents, origin)
                return _stopped(numbers, sources, depth, str(violation), trace)
        level, depth = following, depth + 1
        if tell is not None:
            tell(depth, len(numbers))
    complete = not level
    stuck = _stuck(model, numbers, sources, targets) if complete else 0
    return Explored(len(numbers), len(sources), depth, complete, stuck=stuck)


def _stopped(
    numbers: dict[Code, int], sources: "array[int]", depth: int, what: str, trace: tuple[str, ...]
) -> Explored:
    return Explored(len(numbers), len(sources), depth, complete=False, violation=what, trace=trace)


def _trace(
    model: Model, numbers: dict[Code, int], parents: "array[int]", number: int
) -> tuple[str, ...]:
    """The steps that lead to a state, from the first one."""
    codes = list(numbers)
    way = [number]
    while parents[way[-1]] >= 0:
        way.append(parents[way[-1]])
    way.reverse()
    return tuple(
        next(label for label, after in model.successors(codes[one]) if after == codes[two])
        for one, two in itertools.pairwise(way)
    )


def _stuck(
    model: Model, numbers: dict[Code, int], sources: "array[int]", targets: "array[int]"
) -> int:
    """How many states have no way to an end: found backwards from the ends."""
    good = np.fromiter((model.is_over(code) for code in numbers), dtype=bool, count=len(numbers))
    one, two = np.asarray(sources), np.asarray(targets)
    while True:
        found = one[good[two] & ~good[one]]
        if not len(found):
            return int((~good).sum())
        good[found] = True
