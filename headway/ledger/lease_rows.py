"""Rows of the lease tables: locked, granted, released, and read as values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import ColumnElement, delete, func, type_coerce
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.ledger.codec import record
from headway.ledger.columns import Value, among, db_now
from headway.ledger.tables import LeaseGpuRow, LeasePortRow, LeaseRow, NodeRow
from headway.model.lease import GpuGrant, Lease

LIVE = col(LeaseRow.released_at).is_(None)
"""What counts: unreleased leases, expired ones too."""


def _parts(table: type[LeaseGpuRow | LeasePortRow], gathered: ColumnElement[Any], kind: Any) -> Any:
    rows = select(gathered).where(table.lease_id == LeaseRow.lease_id)
    return type_coerce(rows.correlate(LeaseRow).scalar_subquery(), Value(kind))


_GRANT = (each for f in fields(GpuGrant) for each in (f.name, getattr(LeaseGpuRow, f.name)))
GPUS = _parts(LeaseGpuRow, func.json_agg(func.json_build_object(*_GRANT)), tuple[GpuGrant, ...])
"""What a lease has of GPUs, as a column of a question about leases; None of one without any."""
_PORTS = _parts(
    LeasePortRow, func.json_object_agg(LeasePortRow.program_port, LeasePortRow.port), dict[int, int]
)


def lock_nodes(session: Session, names: Sequence[str]) -> dict[str, NodeRow]:
    """Hold the nodes' rows until the transaction ends.

    All who lock several do so in one order, so that none waits for another in a ring.
    """
    query = select(NodeRow).where(col(NodeRow.name).in_(names)).order_by("name")
    return {row.name: row for row in session.exec(query.with_for_update())}


def leases_of(session: Session, run_id: str) -> Sequence[LeaseRow]:
    """The run's unreleased leases by rank: its own, and those its other ranks have yet to take."""
    query = select(LeaseRow).where(LeaseRow.run_id == run_id, LIVE)
    return session.exec(query.order_by("gang_rank")).all()


def live_lease(session: Session, run_id: str) -> LeaseRow | None:
    """The run's own unreleased lease; a partial index allows one at most."""
    return next((row for row in leases_of(session, run_id) if row.gang_rank == 0), None)


def number(row: LeaseRow) -> int:
    """The lease's id, which the database has given it with the first flush."""
    return row.lease_id or 0


def grant(
    session: Session, row: LeaseRow, gpus: Sequence[GpuGrant], ports: Mapping[int, int]
) -> None:
    """Add *gpus* and *ports*, the node's by the program's, to a lease that was flushed."""
    session.add_all(LeaseGpuRow(lease_id=number(row), **asdict(each)) for each in gpus)
    session.add_all(
        LeasePortRow(lease_id=number(row), port=port, node=row.node, program_port=own)
        for own, port in ports.items()
    )
    session.flush()


def release_all(session: Session, *which: ColumnElement[bool] | bool) -> Sequence[LeaseRow]:
    """Release the live leases that are *which*; they count no more."""
    query = select(LeaseRow).where(LIVE, *which).order_by("lease_id")
    rows = session.exec(query.with_for_update()).all()
    # The ports' rows go, so that the unique constraint guards live ones only.
    if ids := [row.lease_id for row in rows]:
        moment: Any = db_now()
        for row in rows:
            row.released_at = moment
        session.exec(delete(LeasePortRow).where(col(LeasePortRow.lease_id).in_(ids)))
    return rows


def live_leases(session: Session, nodes: Sequence[str]) -> list[Lease]:
    """Unreleased leases on *nodes*, expired ones too."""
    query = select(LeaseRow).where(LIVE, among(LeaseRow.node, nodes))
    return leases_from(session, query.order_by("lease_id"))


def leases_from(session: Session, query: SelectOfScalar[LeaseRow]) -> list[Lease]:
    """The leases that *query* finds, with their GPUs and ports, in one question."""
    return [
        record(Lease, row, gpus=gpus or (), ports=ports or {})
        for row, gpus, ports in session.execute(query.add_columns(GPUS, _PORTS))
    ]


def lease_from(session: Session, row: LeaseRow) -> Lease:
    """The lease of one row, with what was added to it in this transaction."""
    return leases_from(session, select(LeaseRow).where(LeaseRow.lease_id == number(row)))[0]
