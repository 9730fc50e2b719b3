"""What is read of leases: those of a node, of a run, and those that somebody has to see to."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, exists, func, or_
from sqlalchemy.orm import aliased
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.ledger.columns import among, db_now, from_now
from headway.ledger.database import Repository
from headway.ledger.lease_rows import LIVE, leases_from, live_leases
from headway.ledger.nodes import of_the_site
from headway.ledger.records import Neighbour
from headway.ledger.tables import AttemptRow, LeaseGpuRow, LeaseRow, NodeRow, RunRow
from headway.model.lease import Lease
from headway.model.run import GRANTED

_SILENT_S = 60.0
"""A node that was not heard of for so long does not answer."""


class LeaseReads(Repository):
    """Reads of the lease tables."""

    def live(self, node: str | None = None) -> list[Lease]:
        """Unreleased leases, expired ones too; of one node, or of all."""
        with self._database.reading() as session:
            if node is not None:  # each node asks this often: not for the rows of all nodes
                return live_leases(session, [node])
            return live_leases(session, [row.name for row in session.exec(of_the_site())])

    def of_run(self, run_id: str) -> Lease | None:
        """The run's own unreleased lease."""
        own = LeaseRow.run_id == run_id, LIVE, LeaseRow.gang_rank == 0
        return next(iter(self._leases(select(LeaseRow).where(*own))), None)

    def held(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs whose own live lease is on a node that answers."""
        own = among(LeaseRow.run_id, run_ids), LeaseRow.gang_rank == 0, LIVE
        answers = col(NodeRow.heartbeat_at) > from_now(-timedelta(seconds=_SILENT_S))
        query = select(LeaseRow.run_id).where(*own, LeaseRow.node == NodeRow.name, answers)
        with self._database.reading() as session:
            return frozenset(session.exec(query))

    def teams_on(self, node: str) -> frozenset[str]:
        """Whose runs hold something on *node*."""
        held = LeaseRow.node == node, LIVE, RunRow.run_id == LeaseRow.run_id
        with self._database.reading() as session:
            return frozenset(session.exec(select(RunRow.team).where(*held)))

    def untaken(self, run_id: str) -> list[Lease]:
        """What a gang holds for ranks that have not begun yet, by rank."""
        held = LeaseRow.run_id == run_id, LIVE, LeaseRow.gang_rank > 0
        return self._leases(select(LeaseRow).where(*held).order_by("gang_rank"))

    def held_for_ranks(self, pool: str) -> list[Lease]:
        """The same of all gangs of *pool*, oldest first."""
        held = LIVE, LeaseRow.gang_rank > 0, RunRow.pool == pool, col(RunRow.state).in_(GRANTED)
        query = select(LeaseRow).join(RunRow, col(RunRow.run_id) == col(LeaseRow.run_id))
        return self._leases(query.where(*held).order_by("lease_id"))

    def expiries(self, run_ids: Sequence[str]) -> dict[str, datetime]:
        """When the own live lease of each run expires; nothing of those that have none."""
        own = among(LeaseRow.run_id, run_ids), LeaseRow.gang_rank == 0, LIVE
        with self._database.reading() as session:
            return dict(
                session.exec(select(LeaseRow.run_id, LeaseRow.expires_at).where(*own)).all()
            )

    def every_of_run(self, run_id: str) -> list[Lease]:
        """The run's leases, of all its attempts, released ones too; without released ports."""
        query = select(LeaseRow).where(LeaseRow.run_id == run_id)
        return self._leases(query.order_by("lease_id"))

    def neighbours(self, lease: Lease, most: int) -> list[Neighbour]:
        """Who held a part of a GPU of *lease* while it did, the first *most* of them."""
        uuids = [grant.uuid for grant in lease.gpus]
        own, gpu, attempt = col(LeaseRow.lease_id), col(LeaseGpuRow.lease_id), AttemptRow
        moments = LeaseRow.granted_at, attempt.started_at, attempt.ended_at, LeaseRow.released_at
        query = (
            select(LeaseRow.run_id, RunRow.team, RunRow.job)
            .add_columns(*(col(each) for each in moments))
            .select_from(LeaseRow)
            .outerjoin(RunRow, col(RunRow.run_id) == LeaseRow.run_id)
            .outerjoin(
                attempt,
                and_(
                    col(attempt.run_id) == LeaseRow.run_id, col(attempt.attempt) == LeaseRow.attempt
                ),
            )
            .where(
                col(LeaseRow.node) == lease.node,
                own != lease.lease_id,
                or_(col(LeaseRow.released_at) > lease.granted_at, LIVE),
                exists().where(gpu == own, col(LeaseGpuRow.uuid).in_(uuids)),
            )
            .order_by("lease_id")
            .limit(most)
        )
        with self._database.reading() as session:
            return [Neighbour(*row) for row in session.execute(query)]

    def unstarted(self, node: str) -> list[Lease]:
        """Claims on *node* that no flow process has taken up yet, oldest first."""
        return self._leases(_unstarted(node))

    def untaken_claims(self, nodes: Collection[str]) -> dict[str, int]:
        """How many of them there are, by node."""
        with self._database.reading() as session:
            waits = col(LeaseRow.node).in_(nodes), LIVE, col(LeaseRow.start_by).is_not(None)
            counted = select(LeaseRow.node, func.count()).where(*waits).group_by(LeaseRow.node)
            return dict(session.exec(counted).all())

    def overdue(self, node: str) -> list[Lease]:
        """Those claims on *node* whose deadline has passed by the database's clock."""
        return self._leases(_unstarted(node).where(col(LeaseRow.start_by) < db_now()))

    def lost_heads(self, pool: str, margin_s: float) -> list[Lease]:
        """Leases of runs of *pool* that lead a gang and are lost.

        They expired *margin_s* ago: by then the guard there has ended what it could not renew.
        """
        part, held = aliased(RunRow), aliased(LeaseRow)
        begun = exists().where(
            col(part.gang_id) == RunRow.run_id, col(part.attempt) == RunRow.attempt
        )
        waits = exists().where(
            col(held.run_id) == RunRow.run_id,
            col(held.attempt) == RunRow.attempt,
            col(held.gang_rank) > 0,
        )
        query = (
            select(LeaseRow)
            .join(RunRow, col(RunRow.run_id) == col(LeaseRow.run_id))
            .where(
                LIVE,
                LeaseRow.gang_rank == 0,
                RunRow.pool == pool,
                col(LeaseRow.expires_at) < from_now(-timedelta(seconds=margin_s)),
                col(RunRow.state).in_(GRANTED),
                col(RunRow.attempt) == col(LeaseRow.attempt),
                or_(begun, waits),
            )
        )
        return self._leases(query.order_by("lease_id"))

    def _leases(self, query: SelectOfScalar[LeaseRow]) -> list[Lease]:
        with self._database.reading() as session:
            return leases_from(session, query)


def _unstarted(node: str) -> SelectOfScalar[LeaseRow]:
    on_node = LeaseRow.node == node, LIVE, col(LeaseRow.start_by).is_not(None)
    return select(LeaseRow).where(*on_node).order_by("lease_id")
