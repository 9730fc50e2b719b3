"""The queue of a pool, as a plan needs it: light rows, read at one moment."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func
from sqlmodel import Session, col, select

from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.lease_rows import live_leases, number
from headway.ledger.nodes import node_record, of_the_site
from headway.ledger.records import NodeRecord, RunRecord
from headway.ledger.run_rows import runs_of
from headway.ledger.tables import LeaseGpuRow, LeaseRow, NodeRow, RunRow
from headway.model.lease import Lease, Sharing
from headway.model.run import RunState


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """A pool at one moment of the database's clock."""

    at: datetime
    nodes: tuple[NodeRecord, ...]
    leases: tuple[Lease, ...]
    """Every unreleased lease on them."""
    holders: tuple[RunRecord, ...]
    """The runs that the leases belong to."""
    waiting: Mapping[str, int]
    """The attempt of every run in the queue."""
    changed: tuple[RunRecord, ...]
    """Those of the queue that the reader does not know at this attempt."""
    overtaken: Mapping[str, int]
    """How many later runs of at most its priority have started; only where it matters."""


@dataclass(frozen=True, slots=True)
class TeamGpuUse:
    """GPUs that a team held for a while."""

    lease_id: int
    team: str
    share: float
    """GPUs; of a shared one its part."""
    from_at: datetime
    until_at: datetime


class Pools(Repository):
    """Reads of the run, lease and node tables for planning."""

    def snapshot(
        self,
        pool: str,
        known: Mapping[str, int],
        *,
        overtaken_from: int,
        priorities: Mapping[str, int],
    ) -> PoolSnapshot:
        """The pool now.

        Args:
            pool: The work pool.
            known: Runs whose details the reader has, each with the attempt they are of.
            overtaken_from: Below so many times nobody asks how often a run was overtaken.
            priorities: Of work queues, as they are now; of others what was noted at the submission.
        """
        with self._database.reading() as session:
            waiting = _waiting(session, pool)
            nodes = session.exec(of_the_site().where(NodeRow.pool == pool).order_by("name"))
            records = tuple(node_record(row) for row in nodes)
            leases = tuple(live_leases(session, [record.node.name for record in records]))
            holders = runs_of(session, [lease.run_id for lease in leases])
            unknown = [run for run, attempt in waiting.items() if known.get(run) != attempt]
            return PoolSnapshot(
                at=now(session),
                nodes=records,
                leases=leases,
                holders=tuple(holders),
                waiting=waiting,
                changed=tuple(runs_of(session, unknown)),
                overtaken=_overtaken(session, pool, overtaken_from, priorities),
            )

    def used(self, since: datetime) -> list[TeamGpuUse]:
        """What leases that were released at or after *since* held of GPUs, oldest first."""
        with self._database.reading() as session:
            query = (
                select(LeaseRow, RunRow.team, LeaseGpuRow)
                .join(RunRow, col(RunRow.run_id) == col(LeaseRow.run_id))
                .join(LeaseGpuRow, col(LeaseGpuRow.lease_id) == col(LeaseRow.lease_id))
                .where(col(LeaseRow.released_at) >= since)
                .order_by(col(LeaseRow.released_at), col(LeaseRow.lease_id))
            )
            return [
                TeamGpuUse(
                    number(lease),
                    team,
                    1.0 if gpu.sharing is Sharing.WHOLE else gpu.utilisation_frac,
                    lease.granted_at,
                    lease.released_at,
                )
                for lease, team, gpu in session.exec(query)
                if lease.released_at is not None
            ]


def _waiting(session: Session, pool: str) -> dict[str, int]:
    query = select(RunRow.run_id, RunRow.attempt).where(*_in_line(pool))
    return dict(session.exec(query).all())


def _in_line(pool: str) -> tuple[ColumnElement[bool], ...]:
    """Runs that may start as soon as there is room: nobody has suspended them."""
    waits = col(RunRow.state) == RunState.WAITING, col(RunRow.pool) == pool
    return (*waits, col(RunRow.suspended_at).is_(None))


def _overtaken(
    session: Session, pool: str, least: int, priorities: Mapping[str, int]
) -> dict[str, int]:
    """By counting: of the runs that came later, those that have started."""
    line = _in_line(pool)
    oldest: datetime | None = session.exec(select(func.min(RunRow.submitted_at)).where(*line)).one()
    if oldest is None:
        return {}
    later = (
        RunRow.pool == pool,
        col(RunRow.claimed_at).is_not(None),
        col(RunRow.gang_id).is_(None),  # a gang is one run, however many parts it has
        col(RunRow.submitted_at) > oldest,
    )
    if session.exec(select(func.count()).select_from(RunRow).where(*later)).one() < least:
        return {}
    started: dict[int, list[datetime]] = {}
    rows = select(RunRow.queue, RunRow.priority, RunRow.submitted_at).where(*later)
    for queue, noted, submitted_at in session.exec(rows.order_by(col(RunRow.submitted_at))):
        started.setdefault(priorities.get(queue, noted), []).append(submitted_at)
    found = {}
    waiting = select(RunRow.run_id, RunRow.queue, RunRow.priority, RunRow.submitted_at).where(*line)
    for run_id, queue, noted, submitted_at in session.exec(waiting):
        priority = priorities.get(queue, noted)
        found[run_id] = sum(
            len(times) - bisect_right(times, submitted_at)
            for each, times in started.items()
            if each <= priority
        )
    return found
