"""The states of a run that were met, numbered, and what becomes of each."""

import itertools
from typing import Any, NamedTuple

from tests.protocol.invariants import of_one_run
from tests.protocol.node_steps import NODE_STEPS, row_after_tick, row_may_tick
from tests.protocol.node_table import NodeTable
from tests.protocol.numbers import Numbers, Table, bits
from tests.protocol.run_steps import Step, Violation, is_over, run_steps, tidy
from tests.protocol.values import FROZEN, UNLIMITED, UP, Node, Row, Rules


class RowStep(NamedTuple):
    """One step of a run, in numbers."""

    after: Any
    column: Any
    """What a node has to allow: a column of `NodeTable.allows`."""
    admits: Any
    """The node that needs room for it; -1 where none does."""
    costs: Any
    """Faults."""
    label: Any


class RowFacts(NamedTuple):
    """What is known of a state of a run, in numbers."""

    holder: Any
    """The node that has its lease; -1 where none does."""
    is_over: Any
    may_tick: Any
    """A bit for each node: its guard has done what it must within this unit."""
    amiss: Any
    """A bit for each set of running nodes: an invariant is broken then."""
    begin: Any
    """Its first step, and how many there are."""
    count: Any


class RowTable:
    """The states of a run that were met, numbered, and what becomes of each.

    What becomes of one is only worked out when a state has it: `slots` says where it stands
    in the tables then.
    """

    def __init__(self, rules: Rules, nodes: NodeTable) -> None:
        self._rules, self._nodes = rules, nodes
        self._orders = list(itertools.permutations(range(rules.nodes)))
        self.values: list[Row] = []
        self._ids: dict[Row, int] = {}
        self.in_orders = Table(len(self._orders))
        """By number; what follows, by slot."""
        self.slots = Table(1)
        self._slots: dict[int, int] = {}
        self.facts = Table(len(RowFacts._fields))
        self.of_nodes = Table(len(NODE_STEPS) * rules.nodes)
        self.ticks = Table(2**rules.nodes)
        """By the bits of the machines that sleep."""
        self.steps = Table(len(RowStep._fields))
        self.labels: list[str] = []
        self._label_ids: dict[str, int] = {}
        self.violations: dict[int, str] = {}
        """By number: what a step from this row would do that must never be possible."""

    def id(self, row: Row) -> int:
        """The number of *row*; those that differ in the numbering of nodes get theirs too."""
        row = tidy(row, self._rules)
        if row not in self._ids:
            new = list(dict.fromkeys(_in_order(row, order) for order in self._orders))
            for each in new:
                self._ids[each] = len(self.values)
                self.values.append(each)
            for each in new:
                self.in_orders.add([self._ids[_in_order(each, order)] for order in self._orders])
        return self._ids[row]

    def work_out(self, ids: Numbers) -> None:
        """Fill the tables for these rows."""
        for number in ids.tolist():
            if number not in self._slots:
                self._slots[number] = len(self.facts)
                self._work_out(number, self.values[number])
        self.slots = Table(1)
        self.slots.add([self._slots.get(number, -1) for number in range(len(self.values))])
        for table in (
            self.in_orders, self.slots, self.facts, self.of_nodes, self.ticks, self.steps,
            self._nodes.allows,
        ):  # fmt: skip
            table.show()

    def _work_out(self, number: int, row: Row) -> None:
        rules, nodes = self._rules, range(self._rules.nodes)
        begin = len(self.steps)
        try:
            for step in run_steps(row, rules):
                self._add_step(step, self.id(step.row), number)
        except Violation as violation:
            self.violations[number] = str(violation)
        self.of_nodes.add(
            [
                self.id(step.row(row, node, rules)) if step.allows(row, node, rules) else -1
                for step in NODE_STEPS
                for node in nodes
            ]
        )
        sleeping = [
            [bool(asleep >> node & 1) for node in nodes] for asleep in range(2 ** len(nodes))
        ]
        self.ticks.add([self.id(row_after_tick(row, tuple(each), rules)) for each in sleeping])
        awake = [
            tuple(Node(True, UP if each else FROZEN) for each in running) for running in sleeping
        ]
        facts = RowFacts(
            holder=-1 if row.lease is None else row.lease.node,
            is_over=is_over(row, rules),
            may_tick=bits(row_may_tick(row, node, rules) for node in nodes),
            amiss=bits(bool(of_one_run(each, row)) for each in awake),
            begin=begin,
            count=len(self.steps) - begin,
        )
        self.facts.add(facts)

    def _add_step(self, step: Step, after: int, before: int) -> None:
        if after == before:
            return
        label = f"{step.action} {step.node}{' (answer lost)' if step.lost else ''}"
        self.steps.add(
            RowStep(
                after=after,
                column=self._nodes.column(step.action, step.node),
                admits=step.node if step.action == "admit" else -1,
                costs=cost_of(self._rules, step.lost or step.action == "flow dies"),
                label=self.label(label),
            )
        )

    def label(self, text: str) -> int:
        """The number of a step's name."""
        if text not in self._label_ids:
            self._label_ids[text] = len(self.labels)
            self.labels.append(text)
        return self._label_ids[text]


def _in_order(row: Row, order: tuple[int, ...]) -> Row:
    """*row* with the nodes numbered in another order."""
    lease = row.lease
    if lease is not None:
        lease = lease._replace(node=order.index(lease.node))
    return row._replace(lease=lease, cells=tuple(row.cells[old] for old in order))


def cost_of(rules: Rules, is_fault: bool) -> int:
    """How many of the faults that may come a step takes."""
    return int(is_fault and rules.faults < UNLIMITED)
