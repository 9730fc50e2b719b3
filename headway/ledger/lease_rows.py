"""Rows of the lease tables: locked, granted, released, and read as values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, delete
from sqlmodel import Session, col, select

from headway.ledger.codec import record
from headway.ledger.columns import among, now
from headway.ledger.tables import LeaseGpuRow, LeasePortRow, LeaseRow, NodeRow
from headway.model.lease import GpuGrant, Lease

LIVE = col(LeaseRow.released_at).is_(None)
"""What counts: unreleased leases, expired ones too."""


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
    for row in rows:
        row.released_at = now(session)
    # The ports' rows go, so that the unique constraint guards live ones only.
    if ids := [row.lease_id for row in rows]:
        session.exec(delete(LeasePortRow).where(col(LeasePortRow.lease_id).in_(ids)))
    return rows


def live_leases(session: Session, nodes: Sequence[str]) -> list[Lease]:
    """Unreleased leases on *nodes*, expired ones too."""
    query = select(LeaseRow).where(LIVE, col(LeaseRow.node).in_(nodes))
    return leases_from(session, session.exec(query.order_by("lease_id")).all())


def leases_from(session: Session, rows: Sequence[LeaseRow]) -> list[Lease]:
    """The leases of *rows*; their parts in two more queries, not in two for each."""
    if not rows:  # an idle node asks this several times a second
        return []
    ids = [number(row) for row in rows]
    gpus = gpus_of(session, ids)
    ports: dict[int, dict[int, int]] = {}
    query = select(LeasePortRow).where(among(LeasePortRow.lease_id, ids))
    for port in session.exec(query.order_by("program_port")):
        ports.setdefault(port.lease_id, {})[port.program_port] = port.port
    return [
        record(Lease, row, gpus=tuple(gpus.get(each, ())), ports=ports.get(each, {}))
        for each, row in zip(ids, rows, strict=True)
    ]


def gpus_of(session: Session, lease_ids: Sequence[int]) -> Mapping[int, Sequence[GpuGrant]]:
    """What each lease has of GPUs; nothing of those that have none."""
    found: dict[int, list[GpuGrant]] = {}
    for row in session.exec(select(LeaseGpuRow).where(among(LeaseGpuRow.lease_id, lease_ids))):
        found.setdefault(row.lease_id, []).append(record(GpuGrant, row))
    return found


def lease_from(session: Session, row: LeaseRow) -> Lease:
    """The lease of one row."""
    return leases_from(session, [row])[0]
