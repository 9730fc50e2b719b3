"""The queue of a pool, as a plan needs it: light rows, read at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import ColumnElement, Text, cast, func
from sqlmodel import col, select

from headway.ledger.array_tables import ArrayRow
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.following import following
from headway.ledger.lease_rows import live_leases
from headway.ledger.nodes import node_record, of_the_site
from headway.ledger.records import NodeRecord, RunRecord
from headway.ledger.run_rows import runs_of
from headway.ledger.tables import NodeRow, RunRow
from headway.ledger.turns import clock_of
from headway.model.lease import Lease
from headway.model.run import RunState
from headway.model.turn import Turn, VirtualClock
from headway.policy.after import Following

Version = tuple[int, int | None]
"""As of when a waiting run is known: its attempt, and a hash of its demand, which may change within
one; None without a demand. Tags and promises come with each snapshot."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """A pool at one moment of the database's clock."""

    at: datetime
    nodes: tuple[NodeRecord, ...]
    leases: tuple[Lease, ...]
    """Every unreleased lease on them."""
    holders: tuple[RunRecord, ...]
    """The runs that the leases belong to."""
    waiting: Mapping[str, Version]
    """Every run in the queue, as it is now."""
    turns: Mapping[str, Turn]
    """Of those of the queue that have one."""
    clock: VirtualClock | None
    """The virtual clock of the pool; None before its first run."""
    changed: tuple[RunRecord, ...]
    """Those of the queue that the reader does not know as they are now."""
    limited: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Those of the queue whose array runs so many members at most: array and number."""
    following: Mapping[str, Following] = field(default_factory=dict)
    """Those of the queue that follow other runs."""


class Pools(Repository):
    """Reads of the run, lease and node tables for planning."""

    def snapshot(self, pool: str, known: Mapping[str, Version]) -> PoolSnapshot:
        """The pool now.

        Args:
            pool: The work pool.
            known: Runs whose details the reader has, each as it was then.
        """
        in_line = _in_line(pool)
        with self._database.reading(one_moment=True) as session:  # none waits and holds at once
            query = select(RunRow.run_id, RunRow.tag, RunRow.promised_at, RunRow.attempt)
            asked = query.where(*in_line).add_columns(func.hashtext(cast(RunRow.demand, Text)))
            rows = session.execute(asked).all()
            waiting: dict[str, Version] = {row[0]: (row[3], row[4]) for row in rows}
            of_arrays = select(RunRow.run_id, ArrayRow.array_id, ArrayRow.at_most).where(
                *in_line,
                RunRow.array_id == ArrayRow.array_id,
                col(ArrayRow.at_most).is_not(None),
            )
            nodes = session.exec(of_the_site().where(NodeRow.pool == pool).order_by("name"))
            records = tuple(node_record(row) for row in nodes)
            leases = tuple(live_leases(session, [record.node.name for record in records]))
            holders = runs_of(session, [lease.run_id for lease in leases])
            unknown = [run for run, version in waiting.items() if known.get(run) != version]
            return PoolSnapshot(
                at=now(session),
                nodes=records,
                leases=leases,
                holders=tuple(holders),
                waiting=waiting,
                turns={run: Turn(tag, by) for run, tag, by, *_ in rows if tag is not None},
                clock=clock_of(session, pool),
                changed=tuple(runs_of(session, unknown)),
                following=dict(following(session, *in_line)),
                limited={run: (array, most or 0) for run, array, most in session.exec(of_arrays)},
            )


def _in_line(pool: str) -> tuple[ColumnElement[bool] | bool, ...]:
    """Runs that may start as soon as there is room: nobody has suspended them."""
    waits = col(RunRow.state) == RunState.WAITING, col(RunRow.pool) == pool
    return (*waits, col(RunRow.suspended_at).is_(None))
