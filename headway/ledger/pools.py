"""The queue of a pool, as a plan needs it: light rows, read at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, Text, and_, cast, func
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

_OLDEST_AT_WORK = cast(cast(func.pg_snapshot_xmin(func.pg_current_snapshot()), Text), BigInteger)


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
    """Runs of the queue that have changed since the reader's last snapshot, as they are now."""
    turns: Mapping[str, Turn]
    """Of those of `waiting` that have one."""
    clock: VirtualClock | None
    """The virtual clock of the pool; None before its first run."""
    changed: tuple[RunRecord, ...]
    """Those of the queue that the reader does not know as they are now."""
    gone: frozenset[str] = frozenset()
    """Runs that have changed since and are not in the queue."""
    until: int = 0
    """What the next snapshot is to tell the changes since; see `Pools.snapshot`."""
    limited: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Those of the queue whose array runs so many members at most: array and number."""
    following: Mapping[str, Following] = field(default_factory=dict)
    """Those of the queue that follow other runs."""


class Pools(Repository):
    """Reads of the run, lease and node tables for planning."""

    def snapshot(self, pool: str, known: Mapping[str, Version], since: int = 0) -> PoolSnapshot:
        """The pool now.

        A row of the queue carries the number of the transaction that changed it last (a trigger
        of migration 0042). Whatever the reader's last snapshot did not see has a number that was
        not below the oldest one at work then: of thousands that wait it reads again what changed.

        Args:
            pool: The work pool.
            known: Runs whose details the reader has, each as it was then.
            since: `until` of the reader's last snapshot; 0 for the whole queue.
        """
        in_line = _in_line(pool)
        with self._database.reading(one_moment=True) as session:  # none waits and holds at once
            until = session.execute(select(_OLDEST_AT_WORK)).scalar_one()
            query = select(RunRow.run_id, RunRow.tag, RunRow.promised_at, RunRow.attempt)
            asked = query.add_columns(func.hashtext(cast(RunRow.demand, Text)), in_line)
            changed = col(RunRow.queue_version) >= since
            rows = session.execute(asked.where(changed if since else in_line)).all()
            waiting: dict[str, Version] = {row[0]: (row[3], row[4]) for row in rows if row[5]}
            of_arrays = select(RunRow.run_id, ArrayRow.array_id, ArrayRow.at_most).where(
                in_line,
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
                gone=frozenset(row[0] for row in rows if not row[5]),
                turns={row[0]: Turn(row[1], row[2]) for row in rows if row[1] is not None},
                until=until,
                clock=clock_of(session, pool),
                changed=tuple(runs_of(session, unknown)),
                following=dict(following(session, in_line)),
                limited={run: (array, most or 0) for run, array, most in session.exec(of_arrays)},
            )


def _in_line(pool: str) -> ColumnElement[bool]:
    """Runs that may start as soon as there is room: nobody has suspended them."""
    return and_(
        col(RunRow.state) == RunState.WAITING,
        col(RunRow.pool) == pool,
        col(RunRow.suspended_at).is_(None),
    )
