"""Leases: the only place where resources are granted."""

from collections.abc import Sequence
from datetime import timedelta
from secrets import token_hex

from sqlalchemy import delete
from sqlmodel import Session, col, select

from headway.errors import LeaseLost, RunUnknown
from headway.ledger.columns import now
from headway.ledger.database import Database
from headway.ledger.nodes import node_record
from headway.ledger.runs import live_lease, move
from headway.ledger.tables import LeaseGpuRow, LeasePortRow, LeaseRow, NodeRow, RunRow
from headway.model.lease import Admit, Demand, GpuGrant, Lease, Resource, Sharing, Wait
from headway.model.node import NodeReading
from headway.model.run import RunState
from headway.policy.admission import judge
from headway.policy.headroom import compute_headroom


class Leases:
    """The lease tables."""

    def __init__(self, database: Database) -> None:
        """Work on *database*."""
        self._database = database

    def admit(
        self,
        run_id: str,
        node: str,
        demand: Demand,
        *,
        reading: NodeReading | None,
        ttl_s: float,
        utilisation_limit: float = 1.0,
        predicted_high_s: float | None = None,
    ) -> Lease | Wait:
        """Grant *demand* on *node* to a waiting run, or say what is missing.

        One transaction that holds the node's row: whoever comes second sees
        the first one's lease. A run that is not waiting gets no second lease.

        Args:
            run_id: A run in the line.
            node: Where it would run.
            demand: What it needs there.
            reading: The node now; can only make headroom smaller.
            ttl_s: The lease expires so long after its last renewal.
            utilisation_limit: See `policy.admission.judge`.
            predicted_high_s: Upper quantile of the runtime, for backfill.
        """
        with self._database.transaction() as session:
            node_row = lock_node(session, node)
            run = session.get(RunRow, run_id, with_for_update=True)
            if run is None:
                raise RunUnknown(run_id)
            if node_row is None:
                return Wait(Resource.NODE, 1, f"node {node} has not joined this site")
            if run.state != RunState.WAITING.value or live_lease(session, run_id) is not None:
                return Wait(
                    Resource.TURN, 0, "it is claimed already, or its last attempt still ends"
                )
            headroom = compute_headroom(
                node_record(node_row).node, live_leases(session, [node]), reading
            )
            decision = judge(demand, headroom, utilisation_limit=utilisation_limit)
            if isinstance(decision, Wait):
                return decision
            moment = now(session)
            lease = LeaseRow(
                run_id=run_id,
                attempt=run.attempt,
                node=node,
                token=token_hex(16),
                host_memory_bytes=demand.host_memory_bytes,
                cpus=demand.cpus,
                granted_at=moment,
                expires_at=moment + timedelta(seconds=ttl_s),
            )
            if predicted_high_s is not None:
                lease.predicted_end_at = moment + timedelta(seconds=predicted_high_s)
            session.add(lease)
            session.flush()
            _grant(session, lease, decision, demand)
            move(run, RunState.CLAIMED)
            run.node, run.claimed_at = node, moment
            run.resource, run.reason, run.expected_start_at = None, "", None
            session.add(run)
            session.flush()
            return _lease(session, lease)

    def resize(
        self,
        lease_id: int,
        token: str,
        demand: Demand,
        *,
        reading: NodeReading | None,
        ttl_s: float,
        utilisation_limit: float = 1.0,
        predicted_high_s: float | None = None,
    ) -> Lease | Wait:
        """Judge a lease anew for *demand*, its own share left out; on `Wait` nothing changes.

        Raises:
            LeaseLost: Released, or another token holds it.
        """
        with self._database.transaction() as session:
            lease = _held(session, lease_id, token)
            node_row = lock_node(session, lease.node)
            assert node_row is not None  # noqa: S101 - a foreign key says so
            others = [it for it in live_leases(session, [lease.node]) if it.lease_id != lease_id]
            headroom = compute_headroom(node_record(node_row).node, others, reading)
            decision = judge(demand, headroom, utilisation_limit=utilisation_limit)
            if isinstance(decision, Wait):
                return decision
            moment = now(session)
            lease.host_memory_bytes, lease.cpus = demand.host_memory_bytes, demand.cpus
            lease.expires_at = moment + timedelta(seconds=ttl_s)
            if predicted_high_s is not None:
                lease.predicted_end_at = moment + timedelta(seconds=predicted_high_s)
            _forget_parts(session, lease_id)
            _grant(session, lease, decision, demand)
            session.add(lease)
            session.flush()
            return _lease(session, lease)

    def renew(self, lease_id: int, token: str, ttl_s: float) -> None:
        """Move the expiry. Raises `LeaseLost` when it is released or somebody else's."""
        with self._database.transaction() as session:
            lease = _held(session, lease_id, token)
            lease.expires_at = now(session) + timedelta(seconds=ttl_s)
            session.add(lease)

    def release(self, run_id: str) -> bool:
        """Release the run's lease and ports, once its container is gone. Idempotent."""
        with self._database.transaction() as session:
            lease = live_lease(session, run_id)
            if lease is None:
                return False
            _release(session, lease)
            return True

    def give_back(self, run_id: str, token: str) -> bool:
        """Undo a claim before anything started: same attempt, back to the line."""
        with self._database.transaction() as session:
            run = session.get(RunRow, run_id, with_for_update=True)
            lease = live_lease(session, run_id)
            if lease is not None and lease.token == token:
                _release(session, lease)
            if run is None or run.state != RunState.CLAIMED.value:
                return False
            move(run, RunState.WAITING)
            run.claimed_at = None
            session.add(run)
            return True

    def live(self, node: str | None = None) -> list[Lease]:
        """Unreleased leases, expired ones too; of one node, or of all."""
        with self._database.transaction() as session:
            names = [node] if node is not None else session.exec(select(NodeRow.name)).all()
            return live_leases(session, names)

    def of_run(self, run_id: str) -> Lease | None:
        """The run's unreleased lease."""
        with self._database.transaction() as session:
            row = live_lease(session, run_id)
            return None if row is None else _lease(session, row)


def lock_node(session: Session, node: str) -> NodeRow | None:
    """Hold the node's row until the transaction ends; on SQLite the transaction itself does."""
    return session.exec(select(NodeRow).where(NodeRow.name == node).with_for_update()).one_or_none()


def _held(session: Session, lease_id: int, token: str) -> LeaseRow:
    lease = session.get(LeaseRow, lease_id, with_for_update=True)
    if lease is None:
        raise LeaseLost(lease_id, "?", "there is no such lease")
    if lease.released_at is not None:
        raise LeaseLost(lease_id, lease.run_id, "it was released")
    if lease.token != token:
        raise LeaseLost(lease_id, lease.run_id, "another token holds it")
    return lease


def live_leases(session: Session, nodes: Sequence[str]) -> list[Lease]:
    """Unreleased leases on *nodes*, expired ones too; their parts in two more queries, not 2n."""
    query = select(LeaseRow).where(
        col(LeaseRow.released_at).is_(None), col(LeaseRow.node).in_(nodes)
    )
    rows = session.exec(query.order_by("lease_id")).all()
    ids = [row.lease_id for row in rows]
    gpus: dict[int, list[LeaseGpuRow]] = {}
    for gpu in session.exec(select(LeaseGpuRow).where(col(LeaseGpuRow.lease_id).in_(ids))):
        gpus.setdefault(gpu.lease_id, []).append(gpu)
    ports: dict[int, list[int]] = {}
    for port in session.exec(select(LeasePortRow).where(col(LeasePortRow.lease_id).in_(ids))):
        ports.setdefault(port.lease_id, []).append(port.port)
    return [
        _record(row, gpus.get(row.lease_id or 0, []), ports.get(row.lease_id or 0, []))
        for row in rows
    ]


def _grant(session: Session, lease: LeaseRow, admitted: Admit, demand: Demand) -> None:
    lease_id = lease.lease_id or 0  # flushed, so the database has numbered it
    for gpu in admitted.gpus:
        session.add(
            LeaseGpuRow(
                lease_id=lease_id,
                uuid=gpu.uuid,
                memory_bytes=gpu.memory_bytes,
                sharing=gpu.sharing.value,
                utilisation_frac=gpu.utilisation_frac,
            )
        )
    for port in demand.ports:
        session.add(LeasePortRow(lease_id=lease_id, port=port, node=lease.node))


def _release(session: Session, lease: LeaseRow) -> None:
    lease.released_at = now(session)
    session.add(lease)
    # The ports' rows go, so that the unique constraint guards live ones only.
    session.exec(delete(LeasePortRow).where(col(LeasePortRow.lease_id) == lease.lease_id))


def _forget_parts(session: Session, lease_id: int) -> None:
    session.exec(delete(LeaseGpuRow).where(col(LeaseGpuRow.lease_id) == lease_id))
    session.exec(delete(LeasePortRow).where(col(LeasePortRow.lease_id) == lease_id))


def _lease(session: Session, row: LeaseRow) -> Lease:
    gpus = session.exec(select(LeaseGpuRow).where(LeaseGpuRow.lease_id == row.lease_id)).all()
    ports = session.exec(select(LeasePortRow.port).where(LeasePortRow.lease_id == row.lease_id))
    return _record(row, gpus, list(ports))


def _record(row: LeaseRow, gpus: Sequence[LeaseGpuRow], ports: Sequence[int]) -> Lease:
    return Lease(
        lease_id=row.lease_id or 0,
        run_id=row.run_id,
        attempt=row.attempt,
        node=row.node,
        token=row.token,
        host_memory_bytes=row.host_memory_bytes,
        cpus=row.cpus,
        gpus=tuple(
            GpuGrant(gpu.uuid, gpu.memory_bytes, Sharing(gpu.sharing), gpu.utilisation_frac)
            for gpu in gpus
        ),
        ports=tuple(sorted(ports)),
        granted_at=row.granted_at,
        expires_at=row.expires_at,
        predicted_end_at=row.predicted_end_at,
    )
