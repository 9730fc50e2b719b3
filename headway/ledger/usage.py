"""What was held of the site in a span of time: leases with their runs, attempts and GPUs."""

from datetime import datetime

from sqlalchemy import and_, or_
from sqlmodel import col, select

from headway.ledger.database import Repository
from headway.ledger.lease_rows import GPUS
from headway.ledger.nodes import node_record
from headway.ledger.tables import AttemptRow, LeaseRow, NodeRow, RunRow
from headway.model.lease import GpuGrant
from headway.model.node import Node
from headway.model.usage import Holding


class Holdings(Repository):
    """Reads of leases that were held, released ones too: no row of them is ever removed."""

    def between(
        self, since: datetime, until: datetime, *, team: str | None = None, user: str | None = None
    ) -> list[Holding]:
        """What was held between the two moments, oldest first; of one *team* or *user* only."""
        ended = or_(col(LeaseRow.released_at).is_(None), col(LeaseRow.released_at) > since)
        which = [col(LeaseRow.granted_at) < until, ended]
        which += [col(RunRow.team) == team] if team is not None else []
        which += [col(RunRow.owner) == user] if user is not None else []
        same = and_(
            col(AttemptRow.run_id) == col(LeaseRow.run_id),
            col(AttemptRow.attempt) == col(LeaseRow.attempt),
        )
        query = (
            select(LeaseRow, RunRow.team, RunRow.owner, AttemptRow)
            .add_columns(GPUS)
            .join(RunRow, col(RunRow.run_id) == col(LeaseRow.run_id))
            .join(AttemptRow, same, isouter=True)
            .where(*which)
            .order_by(col(LeaseRow.granted_at))
        )
        with self._database.reading() as session:
            return [_holding(*row) for row in session.execute(query)]

    def nodes(self) -> dict[str, Node]:
        """Every node that there ever was, by name: also one that was removed has its prices."""
        with self._database.reading() as session:
            return {row.name: node_record(row).node for row in session.exec(select(NodeRow))}


def _holding(
    lease: LeaseRow,
    team: str,
    owner: str,
    attempt: AttemptRow | None,
    gpus: tuple[GpuGrant, ...] | None,
) -> Holding:
    started_at = attempt.started_at if attempt is not None else None
    return Holding(
        run_id=lease.run_id,
        team=team,
        user=owner,
        node=lease.node,
        began_at=lease.granted_at,
        ended_at=lease.released_at,
        cpus=lease.cpus,
        host_memory_bytes=lease.host_memory_bytes,
        gpus=gpus or (),
        program=(started_at, attempt.ended_at) if attempt is not None and started_at else None,
        measured=attempt.measurement if attempt is not None else None,
    )
