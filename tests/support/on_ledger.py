"""Nodes and runs of a ledger with nothing else: no flow, no container, no Prefect."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from headway.ledger import Ledger
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Node
from headway.units import GIB
from tests.support.leading import admit_in_term

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def join(ledger: Ledger, name: str = "node-a", cpus: float = 64.0) -> None:
    """Let a node with 64 GiB and no GPU join."""
    node = Node(name, "gpu", Capacity(cpus, 64 * GIB))
    ledger.nodes.register(node, boot_id="boot", worker_token="worker")


def enqueue(
    ledger: Ledger, run_id: str, job: Mapping[str, Any] | None = None, **changes: Any
) -> None:
    """Put a run into the queue."""
    values: dict[str, Any] = {
        "name": run_id, "owner": "me", "team": "t", "pool": "gpu", "priority": 0,
        "submitted_at": NOON,
    }  # fmt: skip
    ledger.runs.enqueue(run_id, job or {"name": "x"}, **(values | changes))


def granted(
    ledger: Ledger, run_id: str, demand: Demand | None = None, *, node: str = "node-a"
) -> Lease:
    """The lease of a run that waits, which it gets now."""
    lease = admit_in_term(ledger, run_id, node, demand or Demand(GIB))
    assert isinstance(lease, Lease), lease
    return lease
