"""What must hold in every state of the model."""

from collections.abc import Sequence

from tests.protocol.values import (
    GUARDED_AGAIN,
    LIVE,
    SCHEDULED,
    UNGUARDED,
    UNGUARDED_LATE,
    UP,
    Node,
    Row,
)

RUNS_ON = frozenset({UP, UNGUARDED, UNGUARDED_LATE, GUARDED_AGAIN})
"""Modes of a node whose containers count.

Of a machine that sleeps none runs. Of one that woke in this moment the guard looks at
every container before a unit is over: until then they are the ones that the issue's
target allows, dead within 1 s of waking, and nothing that they write is accepted.
"""


def of_one_run(nodes: Sequence[Node], row: Row) -> str:
    """Which invariant one run breaks by itself; empty where all hold."""
    alive = [
        (node, cell.box.attempt)
        for node, cell in enumerate(row.cells)
        if cell.box is not None and cell.box.state == LIVE and nodes[node].mode in RUNS_ON
    ]
    if len(alive) > 1:
        return f"never twice: attempts {alive} are alive"
    for node, attempt in alive:
        lease = row.lease
        if lease is None or (lease.node, lease.attempt) != (node, attempt):
            return f"a lease per live container: attempt {attempt} on node {node} has none"
    if row.told and row.prefect not in (row.end, SCHEDULED):
        return f"Prefect's state is the ledger's: told, but {row.prefect} is not {row.end}"
    return ""
