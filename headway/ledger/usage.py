"""What was held of the site in a span of time: leases with their runs, attempts and GPUs."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, or_
from sqlmodel import Session, col, select

from headway.ledger.database import Repository
from headway.ledger.nodes import node_record
from headway.ledger.tables import AttemptRow, LeaseGpuRow, LeaseRow, NodeRow, RunRow
from headway.model.lease import GpuGrant
from headway.model.node import Node
from headway.model.usage import Holding

_PAGE = 500
"""PostgreSQL takes some 65,000 parameters at most."""


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
            .join(RunRow, col(RunRow.run_id) == col(LeaseRow.run_id))
            .join(AttemptRow, same, isouter=True)
            .where(*which)
            .order_by(col(LeaseRow.granted_at))
        )
        with self._database.reading() as session:
            rows = session.exec(query).all()
            gpus = _gpus(session, [row[0].lease_id or 0 for row in rows])
            return [_holding(*row, gpus.get(row[0].lease_id or 0, ())) for row in rows]

    def nodes(self) -> dict[str, Node]:
        """Every node that there ever was, by name: also one that was removed has its prices."""
        with self._database.reading() as session:
            return {row.name: node_record(row).node for row in session.exec(select(NodeRow))}


def _gpus(session: Session, lease_ids: Sequence[int]) -> dict[int, tuple[GpuGrant, ...]]:
    found: dict[int, tuple[GpuGrant, ...]] = {}
    for start in range(0, len(lease_ids), _PAGE):
        page = lease_ids[start : start + _PAGE]
        for row in session.exec(select(LeaseGpuRow).where(col(LeaseGpuRow.lease_id).in_(page))):
            grant = GpuGrant(row.uuid, row.memory_bytes, row.sharing, row.utilisation_frac)
            found[row.lease_id] = (*found.get(row.lease_id, ()), grant)
    return found


def _holding(
    lease: LeaseRow,
    team: str,
    owner: str,
    attempt: AttemptRow | None,
    gpus: tuple[GpuGrant, ...],
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
        gpus=gpus,
        program=(started_at, attempt.ended_at) if attempt is not None and started_at else None,
        measured=attempt.measurement if attempt is not None else None,
    )
