"""The model as tables of numbers, so that millions of states are looked at together.

A state is one integer: the faults that may still come, the number of the nodes' part, and
those of the runs' parts. Runs are alike and nodes are alike: of states that differ only in
how they are numbered, the one with the smallest integer stands for all.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tests.protocol.node_steps import NODE_STEPS
from tests.protocol.node_table import NodeTable
from tests.protocol.numbers import Numbers
from tests.protocol.row_table import RowFacts, RowStep, RowTable, cost_of
from tests.protocol.values import UNLIMITED, Rules, State, first_state

_FAULT_BITS = 3


class Reached(NamedTuple):
    """Steps from some states: which of them each leaves, where it leads, what it is called."""

    sources: Numbers
    keys: Numbers
    labels: Numbers


class Model:
    """The model under *rules*."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.nodes = NodeTable(rules)
        self.rows = RowTable(rules, self.nodes)
        self._node_bits = len(self.nodes.values).bit_length()
        self._row_bits = (62 - _FAULT_BITS - self._node_bits) // rules.runs
        self._of_nodes = [
            (cost_of(rules, step.is_fault), self.rows.label(f"{step.action} {node}"))
            for step in NODE_STEPS
            for node in range(rules.nodes)
        ]
        self._tick = self.rows.label("tick")

    def first(self) -> Numbers:
        """The first state."""
        state = first_state(self.rules)
        rows = np.array([[self.rows.id(row) for row in state.rows]])
        self.rows.work_out(rows[0])
        faults = 0 if self.rules.faults == UNLIMITED else self.rules.faults
        return self._keys(np.array([faults]), np.array([self.nodes.ids[state.nodes]]), rows)

    def state(self, key: int) -> State:
        """What *key* stands for."""
        _, nodes, rows = self._parts(np.array([key]))
        return State(
            self.nodes.values[int(nodes[0])],
            tuple(self.rows.values[each] for each in rows[0].tolist()),
        )

    def work_out(self, keys: Numbers) -> str:
        """Prepare for steps from these states; what a step from one of them would break."""
        new = np.unique(self._parts(keys)[2])
        self.rows.work_out(new)
        return next(
            (self.rows.violations[row] for row in new.tolist() if row in self.rows.violations), ""
        )

    def violating(self, keys: Numbers) -> Numbers:
        """Those states from which a step would break something."""
        return keys[np.isin(self._parts(keys)[2], list(self.rows.violations)).any(axis=1)]

    def amiss(self, keys: Numbers) -> Numbers:
        """Those states that break an invariant."""
        _, nodes, rows = self._parts(keys)
        facts = self._facts(rows)
        running = self.nodes.running[nodes]
        wrong = (facts.amiss >> running[:, None] & 1).any(axis=1)
        for node in range(self.rules.nodes):
            wrong |= (facts.holder == node).sum(axis=1) > self.rules.capacity
        return keys[wrong]

    def is_over(self, keys: Numbers) -> Numbers:
        """Of each state: whether every run has ended and nothing is left."""
        return self._facts(self._parts(keys)[2]).is_over.all(axis=1)

    def steps(self, keys: Numbers) -> Iterator[Reached]:
        """Every step from these states, many at once."""
        faults, nodes, rows = self._parts(keys)
        facts = self._facts(rows)
        for run in range(self.rules.runs):
            yield self._of_run(run, faults, nodes, rows, facts)
        slots = self.rows.slots.rows[rows, 0]
        for column, (costs, label) in enumerate(self._of_nodes):
            after = self.nodes.steps[nodes, column]
            rows_after = self.rows.of_nodes.rows[slots, column]
            taken = (after >= 0) & (costs <= faults) & (rows_after >= 0).all(axis=1)
            taken &= (after != nodes) | (rows_after != rows).any(axis=1)
            yield self._reached(taken, faults - costs, after, rows_after, label)
        after = self.nodes.tick[nodes]
        rows_after = self.rows.ticks.rows[slots, self.nodes.asleep[nodes][:, None]]
        idle = facts.may_tick | ~self.nodes.up[nodes][:, None]
        everybody = 2**self.rules.nodes - 1
        taken = (after >= 0) & (idle & everybody == everybody).all(axis=1)
        yield self._reached(taken, faults, after, rows_after, self._tick)

    def _of_run(
        self, run: int, faults: Numbers, nodes: Numbers, rows: Numbers, facts: "RowFacts"
    ) -> Reached:
        # Rows are sorted: the twin of the one before does the same.
        first = rows[:, run] != rows[:, run - 1] if run else np.ones(len(rows), dtype=bool)
        chosen = np.flatnonzero(first)
        counts = facts.count[chosen, run]
        sources = np.repeat(chosen, counts)
        offsets = facts.begin[chosen, run] - (np.cumsum(counts) - counts)
        step = RowStep(
            *self.rows.steps.rows[np.repeat(offsets, counts) + np.arange(len(sources))].T
        )
        held = (facts.holder[sources] == step.admits[:, None]).sum(axis=1)
        has_room = (step.admits < 0) | (held < self.rules.capacity) | (not self.rules.locked)
        taken = self.nodes.allows.rows[step.column, nodes[sources]].astype(bool) & has_room
        taken &= step.costs <= faults[sources]
        sources = sources[taken]
        after = rows[sources]
        after[:, run] = step.after[taken]
        keys = self._keys(faults[sources] - step.costs[taken], nodes[sources], after)
        return Reached(sources, keys, step.label[taken])

    def _reached(
        self, taken: Numbers, faults: Numbers, nodes: Numbers, rows: Numbers, label: int
    ) -> Reached:
        sources = np.flatnonzero(taken)
        keys = self._keys(faults[sources], nodes[sources], rows[sources])
        return Reached(sources, keys, np.full(len(sources), label))

    def _keys(self, faults: Numbers, nodes: Numbers, rows: Numbers) -> Numbers:
        """The smallest number of each state, over every order of the nodes and of the runs."""
        if len(self.rows.values) >> self._row_bits:
            raise OverflowError(f"{len(self.rows.values):,} rows do not fit into a state's number")
        best = None
        for order in range(len(self.nodes.in_orders[0])):
            key = faults << self._node_bits | self.nodes.in_orders[nodes, order]
            for row in np.sort(self.rows.in_orders.rows[rows, order], axis=1).T:
                key = key << self._row_bits | row
            best = key if best is None else np.minimum(best, key)
        return best

    def _parts(self, keys: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        bits, runs = self._row_bits, self.rules.runs
        shifts = np.arange(runs - 1, -1, -1) * bits
        rows = keys[:, None] >> shifts & (1 << bits) - 1
        nodes = keys >> runs * bits & (1 << self._node_bits) - 1
        return keys >> runs * bits + self._node_bits, nodes, rows

    def _facts(self, rows: Numbers) -> "RowFacts":
        slots = self.rows.slots.rows[rows, 0]
        return RowFacts(*np.moveaxis(self.rows.facts.rows[slots], -1, 0))
