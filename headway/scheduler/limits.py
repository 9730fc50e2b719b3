"""What an operator set on a work pool and its queues in Prefect, as the ledger keeps it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.ledger import Ledger
from headway.ledger.codec import from_json, to_json
from headway.ledger.records import RunRecord


@dataclass(frozen=True, slots=True)
class Gates:
    """What an operator set on work pool and queues in Prefect."""

    paused: frozenset[str] = frozenset()
    """Queues that start nothing."""
    pool_paused: bool = False
    pool_limit: int | None = None
    """Runs at once in the pool."""
    queue_limits: Mapping[str, int] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of each queue; larger goes first."""


GATES = "gates"
"""Name under which the ledger keeps them for each pool, so that all plan by the same."""


def gates_document(gates: Gates) -> dict[str, Any]:
    """*gates* as the ledger keeps them."""
    return {**to_json(gates), "paused": sorted(gates.paused)}


def read_gates(ledger: Ledger, pool: str) -> Gates:
    """The gates of *pool* as a worker last put them into the ledger."""
    return from_json(Gates, ledger.settings.get(f"{GATES}/{pool}") or {})


@dataclass(slots=True)
class QueueCounts:
    """Runs at once, against the limits that Prefect's pools and queues may have."""

    in_pool: int
    by_queue: dict[str, int]

    @classmethod
    def of(cls, holders: Sequence[RunRecord]) -> "QueueCounts":
        """Of the runs that hold leases; a gang is one."""
        by_queue: dict[str, int] = {}
        runs = [record for record in holders if record.gang_id is None]
        for record in runs:
            by_queue[record.queue] = by_queue.get(record.queue, 0) + 1
        return cls(len(runs), by_queue)

    def add(self, queue: str) -> None:
        """One more starts from *queue*."""
        self.in_pool += 1
        self.by_queue[queue] = self.by_queue.get(queue, 0) + 1

    def may_start(self, queue: str, gates: Gates) -> bool:
        """Whether the limits leave room for one more from *queue*."""
        if gates.pool_limit is not None and self.in_pool >= gates.pool_limit:
            return False
        limit = gates.queue_limits.get(queue)
        return limit is None or self.by_queue.get(queue, 0) < limit
