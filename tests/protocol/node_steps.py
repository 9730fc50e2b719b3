"""The steps that change a whole node, and the tick of the clock."""

from collections.abc import Callable
from typing import NamedTuple

from tests.protocol.run_steps import requeued, without_lease
from tests.protocol.values import (
    CLAIMED,
    CREATED,
    EMPTY,
    FROZEN,
    GUARDED_AGAIN,
    LIVE,
    MARGIN,
    RUNNING,
    TTL,
    UNGUARDED,
    UNGUARDED_LATE,
    UP,
    WOKEN,
    Cell,
    Node,
    Row,
    Rules,
)

_OLDEST = TTL + MARGIN
_OF_THE_GUARD = frozenset({"renew", "guard kills"})


class NodeStep(NamedTuple):
    """What happens to a node, and through it to every run."""

    action: str
    is_fault: bool
    possible: Callable[[Node, Rules], bool]
    node: Callable[[Node], Node]
    allows: Callable[[Row, int, Rules], bool]
    """Whether a run allows it."""
    row: Callable[[Row, int, Rules], Row]
    """The run afterwards."""


def _any(_row: Row, _node: int, _rules: Rules) -> bool:
    return True


def _same(row: Row, _node: int, _rules: Rules) -> Row:
    return row


def _nothing_overdue(row: Row, node: int, rules: Rules) -> bool:
    box = row.cells[node].box
    may_run = (LIVE, CREATED) if rules.guard_kills_created else (LIVE,)
    overdue = box is not None and box.state in may_run and box.unrenewed >= rules.guard_limit
    return not (rules.guard_kills and overdue)


def _empty_here(row: Row, node: int, _rules: Rules) -> bool:
    return row.cells[node] == EMPTY


def _may_be_taken(row: Row, node: int, rules: Rules) -> bool:
    return row.lease is None or row.lease.node != node or row.lease.age >= rules.remove_after


def _power_lost(row: Row, node: int, _rules: Rules) -> Row:
    return row._replace(cells=(*row.cells[:node], EMPTY, *row.cells[node + 1 :]))


def _taken_away(row: Row, node: int, rules: Rules) -> Row:
    if row.lease is None or row.lease.node != node:
        return row
    granted = row.state in (CLAIMED, RUNNING)
    return without_lease(requeued(row, rules) if granted else row)


def _guard_is_back(row: Row, node: int, rules: Rules) -> Row:
    box = row.cells[node].box
    if box is None or rules.guard_remembers:
        return row
    cell = row.cells[node]._replace(box=box._replace(unrenewed=0))
    return row._replace(cells=(*row.cells[:node], cell, *row.cells[node + 1 :]))


NODE_STEPS = (
    NodeStep(
        "machine sleeps",
        True,
        lambda node, _rules: node.mode == UP,
        lambda node: node._replace(mode=FROZEN),
        _any,
        _same,
    ),
    NodeStep(
        "machine wakes",
        False,
        lambda node, _rules: node.mode == FROZEN,
        lambda node: node._replace(mode=WOKEN),
        _any,
        _same,
    ),
    NodeStep(
        "guard looks after waking",
        False,
        lambda node, _rules: node.mode == WOKEN,
        lambda node: node._replace(mode=UP),
        _nothing_overdue,
        _same,
    ),
    NodeStep(
        "guard dies",
        True,
        lambda node, _rules: node.mode == UP,
        lambda node: node._replace(mode=UNGUARDED),
        _any,
        _same,
    ),
    NodeStep(
        "guard is back",
        False,
        lambda node, _rules: node.mode in (UNGUARDED, UNGUARDED_LATE),
        lambda node: node._replace(mode=GUARDED_AGAIN),
        _any,
        _guard_is_back,
    ),
    NodeStep(
        "guard looks after its return",
        False,
        lambda node, _rules: node.mode == GUARDED_AGAIN,
        lambda node: node._replace(mode=UP),
        _nothing_overdue,
        _same,
    ),
    NodeStep(
        "power is lost",
        True,
        lambda _node, _rules: True,
        lambda node: node._replace(mode=UP),
        _any,
        _power_lost,
    ),
    NodeStep(
        "node remove",
        False,
        lambda node, _rules: node.member,
        lambda node: node._replace(member=False),
        _may_be_taken,
        _taken_away,
    ),
    NodeStep(
        "node joins",
        False,
        lambda node, _rules: not node.member and node.mode == UP,
        lambda node: node._replace(member=True),
        _empty_here,
        _same,
    ),
)


def may_tick(node: Node) -> bool:
    """A guard is away for a unit at most; when it is back or wakes it looks at once."""
    return node.mode not in (WOKEN, UNGUARDED_LATE, GUARDED_AGAIN)


def after_tick(node: Node) -> Node:
    """The node a unit later."""
    return node._replace(mode=UNGUARDED_LATE) if node.mode == UNGUARDED else node


def row_may_tick(row: Row, node: int, rules: Rules) -> bool:
    """Whether the guard of *node*, which is up, has done what it must within this unit."""
    return _nothing_overdue(row, node, rules)


def row_after_tick(row: Row, asleep: tuple[bool, ...], rules: Rules) -> Row:
    """The run a unit later; *asleep* says which machines sleep."""
    lease = row.lease
    if lease is not None:
        lease = lease._replace(age=min(lease.age + 1, _OLDEST), claim=lease.claim and 1)
    cells = tuple(
        cell if sleeps and not rules.counts_sleep else _older(cell, rules)
        for cell, sleeps in zip(row.cells, asleep, strict=True)
    )
    return row._replace(lease=lease, cells=cells)


def _older(cell: Cell, rules: Rules) -> Cell:
    if cell.box is None:
        return cell
    unrenewed = min(cell.box.unrenewed + 1, rules.unrenewed_cap)
    return cell._replace(box=cell.box._replace(unrenewed=unrenewed))


def is_possible(action: str, node: Node) -> bool:
    """Whether a step of a run can happen on a node that is so."""
    if node.mode == FROZEN:
        return False
    if action == "admit":
        return node.member
    return action not in _OF_THE_GUARD or node.mode in (UP, WOKEN, GUARDED_AGAIN)
