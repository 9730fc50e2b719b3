"""The model with its states as small tuples, so that hundreds of thousands can be kept.

A state is the faults that may still come, the nodes, and a number for each run's part. Runs are
alike and nodes are alike: of states that differ only in how they are numbered, the smallest stands
for all.
"""

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import NamedTuple

from tests.protocol.invariants import of_one_run
from tests.protocol.node_steps import (
    NODE_STEPS,
    after_tick,
    is_possible,
    may_tick,
    row_after_tick,
    row_may_tick,
)
from tests.protocol.run_steps import ANYWHERE, is_over, run_steps, tidy
from tests.protocol.values import FROZEN, UNLIMITED, UP, Node, Row, Rules, first_state

Nodes = tuple[Node, ...]
Key = tuple[int, Nodes, tuple[int, ...]]


class _RunStep(NamedTuple):
    """One step of a run's part that has a number."""

    action: str
    node: int
    label: str
    costs: int
    """Faults."""
    after: int


class Model:
    """The model under *rules*."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._orders = list(permutations(range(rules.nodes)))
        self._rows: list[Row] = []
        self._numbers: dict[Row, int] = {}
        for known in (self._of_run, self._of_node, self._ticked, self._ordered, self._amiss):
            setattr(self, known.__name__, cache(known))

    def first(self) -> Key:
        """The first state."""
        state, faults = first_state(self._rules), self._rules.faults
        rows = tuple(map(self._number, state.rows))
        return self._key(faults * (faults < UNLIMITED), state.nodes, rows)

    def broken(self, key: Key) -> str:
        """Which invariant the state breaks; empty where all hold."""
        _, nodes, rows = key
        held = self._held(rows)
        for node in range(self._rules.nodes):
            if held.count(node) > self._rules.capacity:
                return f"never overcommitted: {held.count(node)} leases on node {node}"
        return next(filter(None, (self._amiss(row, nodes) for row in rows)), "")

    def is_over(self, key: Key) -> bool:
        """Whether every run has ended and nothing of it is left."""
        return all(is_over(self._rows[row], self._rules) for row in key[2])

    def steps(self, key: Key) -> Iterator[tuple[str, Key]]:
        """Every step from the state: what it is called, and where it leads.

        Raises:
            Violation: One of them must never be possible.
        """
        faults, nodes, rows = key
        held = self._held(rows)
        for at, row in enumerate(rows):
            if at and row == rows[at - 1]:
                continue  # the twin of the one before does the same
            for step in self._of_run(row):
                full = step.action == "admit" and held.count(step.node) >= self._rules.capacity
                if step.costs > faults or (full and self._rules.locked):
                    continue
                if step.node == ANYWHERE or is_possible(step.action, nodes[step.node]):
                    after = (*rows[:at], step.after, *rows[at + 1 :])
                    yield step.label, self._key(faults - step.costs, nodes, after)
        for number, step in enumerate(NODE_STEPS):
            costs = self._costs(is_fault=step.is_fault)
            for node, seen in enumerate(nodes):
                if costs > faults or not step.possible(seen, self._rules):
                    continue
                after = tuple(self._of_node(row, number, node) for row in rows)
                if -1 not in after:
                    others = (*nodes[:node], step.node(seen), *nodes[node + 1 :])
                    yield f"{step.action} {node}", self._key(faults - costs, others, after)
        if all(map(may_tick, nodes)) and -1 not in (
            after := tuple(self._ticked(row, nodes) for row in rows)
        ):
            yield "tick", self._key(faults, tuple(map(after_tick, nodes)), after)

    def _costs(self, *, is_fault: bool) -> int:
        """How many of the faults that may come a step takes."""
        return int(is_fault and self._rules.faults < UNLIMITED)

    def _held(self, rows: tuple[int, ...]) -> list[int]:
        leases = (self._rows[row].lease for row in rows)
        return [lease.node for lease in leases if lease is not None]

    def _number(self, row: Row) -> int:
        row = tidy(row, self._rules)
        if row not in self._numbers:
            self._numbers[row] = len(self._rows)
            self._rows.append(row)
        return self._numbers[row]

    def _key(self, faults: int, nodes: Nodes, rows: tuple[int, ...]) -> Key:
        """The smallest of the state's names, over every order of the nodes and of the runs."""
        names = (
            (tuple(nodes[old] for old in order), tuple(sorted(self._ordered(r)[at] for r in rows)))
            for at, order in enumerate(self._orders)
        )
        return faults, *min(names)

    def _ordered(self, number: int) -> list[int]:
        """The same part with the nodes in each order."""
        row, found = self._rows[number], []
        for order in self._orders:
            lease = row.lease and row.lease._replace(node=order.index(row.lease.node))
            cells = tuple(row.cells[old] for old in order)
            found.append(self._number(row._replace(lease=lease, cells=cells)))
        return found

    def _amiss(self, number: int, nodes: Nodes) -> str:
        return of_one_run(nodes, self._rows[number])

    def _of_run(self, number: int) -> list[_RunStep]:
        found = []
        for step in run_steps(self._rows[number], self._rules):
            label = f"{step.action} {step.node}{' (answer lost)' if step.lost else ''}"
            costs = self._costs(is_fault=step.lost or step.action == "flow dies")
            after = self._number(step.row)
            found.append(_RunStep(step.action, step.node, label, costs, after))
        return [step for step in found if step.after != number]

    def _of_node(self, number: int, step: int, node: int) -> int:
        """The part after a step of a node; -1 where it does not allow that."""
        row, taken = self._rows[number], NODE_STEPS[step]
        allowed = taken.allows(row, node, self._rules)
        return self._number(taken.row(row, node, self._rules)) if allowed else -1

    def _ticked(self, number: int, nodes: Nodes) -> int:
        """The part a unit later; -1 where a guard that is up has something to do before."""
        row, rules = self._rows[number], self._rules
        awake = (node for node, seen in enumerate(nodes) if seen.mode == UP)
        if not all(row_may_tick(row, node, rules) for node in awake):
            return -1
        asleep = tuple(seen.mode == FROZEN for seen in nodes)
        return self._number(row_after_tick(row, asleep, rules))
