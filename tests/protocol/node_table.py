"""Every state of all nodes, numbered, and what becomes of each."""

import itertools
from collections.abc import Callable

import numpy as np

from tests.protocol.invariants import RUNS_ON
from tests.protocol.node_steps import NODE_STEPS, after_tick, is_possible, may_tick
from tests.protocol.numbers import Numbers, Table, bits
from tests.protocol.run_steps import ANYWHERE
from tests.protocol.values import FROZEN, MODES, UP, Node, Rules


class NodeTable:
    """Arrays over the numbers of the nodes' states; -1 stands for what is not possible."""

    def __init__(self, rules: Rules) -> None:
        one = [Node(member, mode) for member in (True, False) for mode in MODES]
        self.values = list(itertools.product(one, repeat=rules.nodes))
        self.ids = {value: number for number, value in enumerate(self.values)}
        orders = list(itertools.permutations(range(rules.nodes)))
        self.in_orders = self._of_each(
            lambda value: [self.ids[tuple(value[old] for old in order)] for order in orders]
        )
        self.steps = self._of_each(lambda value: self._stepped(value, rules))
        self.tick = self._of_each(self._ticked)
        self.asleep = self._of_each(lambda value: bits(node.mode == FROZEN for node in value))
        self.up = self._of_each(lambda value: bits(node.mode == UP for node in value))
        self.running = self._of_each(lambda value: bits(node.mode in RUNS_ON for node in value))
        self.allows = Table(len(self.values))
        """By the column of a run's step: whether the nodes let it happen."""
        self._columns: dict[tuple[str, int], int] = {}

    def column(self, action: str, node: int) -> int:
        """The column of `allows` for a step of a run on *node*."""
        if (action, node) not in self._columns:
            self._columns[action, node] = len(self.allows)
            self.allows.add(
                [node == ANYWHERE or is_possible(action, value[node]) for value in self.values]
            )
        return self._columns[action, node]

    def _of_each(self, what: Callable[[tuple[Node, ...]], int | list[int]]) -> Numbers:
        return np.array([what(value) for value in self.values], dtype=np.int64)

    def _ticked(self, value: tuple[Node, ...]) -> int:
        return self.ids[tuple(map(after_tick, value))] if all(map(may_tick, value)) else -1

    def _stepped(self, value: tuple[Node, ...], rules: Rules) -> list[int]:
        """The nodes after each step of each node."""
        return [
            self.ids[(*value[:node], step.node(mode), *value[node + 1 :])]
            if step.possible(mode, rules)
            else -1
            for step in NODE_STEPS
            for node, mode in enumerate(value)
        ]
