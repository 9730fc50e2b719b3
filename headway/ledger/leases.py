"""Leases: the only place where resources are granted."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from secrets import token_hex

from sqlalchemy import delete
from sqlmodel import Session, col, select

from headway.errors import LeaseLost, RunUnknown
from headway.ledger.attempts import note_claim, note_end
from headway.ledger.columns import now
from headway.ledger.database import Database
from headway.ledger.nodes import node_record, of_the_site
from headway.ledger.runs import leases_of, live_lease, move
from headway.ledger.tables import LeaseGpuRow, LeasePortRow, LeaseRow, NodeRow, RunRow
from headway.model.lease import Admit, Demand, GpuGrant, Lease, Resource, Sharing, Wait
from headway.model.node import NodeReading
from headway.model.run import GRANTED, Exit, ExitKind, RunState, rank_name
from headway.policy.admission import judge
from headway.policy.headroom import compute_headroom

FIRST_MEETING_PORT = 29_500
"""Where the ranks of a gang meet, or on the next port that is free on that node."""

_BEGUN_WITHOUT_ITS_HEAD = Exit(
    ExitKind.INFRASTRUCTURE, None, "rank 0 was given back when other ranks had begun"
)


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
        others: Sequence[str] = (),
        utilisation_limit: float = 1.0,
        predicted_high_s: float | None = None,
    ) -> Lease | Wait:
        """Grant *demand* on *node*, and on *others*, to a waiting run, or say what is missing.

        One transaction that holds the nodes' rows: whoever comes second sees
        the first one's lease. A run that is not waiting gets no second lease.
        A gang gets all of its leases or none; those on *others* wait there
        for their rank to `take` them, and the first has a port more, where
        the ranks meet.

        Args:
            run_id: A run in the line.
            node: Where it would run; of a gang, where rank 0 would.
            demand: What it needs there, and on each of *others*.
            reading: *node* now; can only make headroom smaller. The others go
                by what the ledger has of them.
            ttl_s: The leases expire so long after their last renewal.
            others: Nodes of the ranks 1, 2, …
            utilisation_limit: See `policy.admission.judge`.
            predicted_high_s: Upper quantile of the runtime, for backfill.

        Returns:
            The lease on *node*, or why there is none.
        """
        names = (node, *others)
        with self._database.transaction() as session:
            rows = lock_nodes(session, names)
            run = session.get(RunRow, run_id, with_for_update=True)
            if run is None:
                raise RunUnknown(run_id)
            missing = next((name for name in names if name not in rows), None)
            if missing is not None:
                return Wait(Resource.NODE, 1, f"node {missing} has not joined this site")
            if run.state != RunState.WAITING.value or leases_of(session, run_id):
                return Wait(
                    Resource.TURN, 0, "it is claimed already, or its last attempt still ends"
                )
            admits = []
            for name in names:
                record = node_record(rows[name])
                seen = reading if name == node else record.reading
                headroom = compute_headroom(record.node, live_leases(session, [name]), seen)
                decision = judge(demand, headroom, utilisation_limit=utilisation_limit)
                if isinstance(decision, Wait):
                    return decision
                admits.append(decision)
            moment = now(session)
            leases = [
                LeaseRow(
                    run_id=run_id,
                    gang_rank=rank,
                    attempt=run.attempt,
                    node=name,
                    token=token_hex(16),
                    host_memory_bytes=demand.host_memory_bytes,
                    cpus=demand.cpus,
                    disk_bytes=demand.disk_bytes,
                    granted_at=moment,
                    expires_at=moment + timedelta(seconds=ttl_s),
                    predicted_end_at=None
                    if predicted_high_s is None
                    else moment + timedelta(seconds=predicted_high_s),
                )
                for rank, name in enumerate(names)
            ]
            session.add_all(leases)
            session.flush()
            for lease, decision in zip(leases, admits, strict=True):
                _grant_gpus(session, lease, decision)
                _grant_ports(session, lease, demand.ports)
            if others:
                _grant_ports(session, leases[0], [_meeting_port(session, node)])
            move(run, RunState.CLAIMED)
            run.node, run.claimed_at = node, moment
            note_claim(session, run)
            run.resource, run.reason, run.expected_start_at = None, "", None
            session.add(run)
            session.flush()
            return _lease(session, leases[0])

    def take(self, lease_id: int, gang_id: str, attempt: int, run_id: str) -> Lease:
        """Make a lease that a gang holds for a rank the own one of run *run_id*. Idempotent.

        From here on the rank is a claimed run of its own on its node, which
        settles and cleans up like any other.

        Args:
            lease_id: One of `untaken`. Only this one: a rank that was called for
                an earlier grant of the same attempt belongs to another node.
            gang_id: The run that rank 0 is.
            attempt: Its attempt.
            run_id: The run that this rank is from now on.

        Raises:
            LeaseLost: The gang holds it no more, or another run took it.
        """
        with self._database.transaction() as session:
            lease = session.get(LeaseRow, lease_id)
            if lease is not None:
                lock_nodes(session, [lease.node])  # as `admit`: nodes first, then the run
            gang = session.get(RunRow, gang_id, with_for_update=True)
            if gang is None:
                raise RunUnknown(gang_id)
            taken = live_lease(session, run_id)
            if taken is not None:
                return _lease(session, taken)
            lease = session.get(LeaseRow, lease_id, with_for_update=True, populate_existing=True)
            held = lease is not None and lease.run_id == gang_id and lease.released_at is None
            over = gang.attempt != attempt or gang.state not in GRANTED
            if lease is None or not held or lease.gang_rank == 0 or over:
                why = f"attempt {attempt} of the gang is over, or its part here began elsewhere"
                raise LeaseLost(lease_id, gang_id, why)
            session.add(_rank_run(gang, lease, run_id))
            session.flush()
            lease.run_id, lease.gang_rank = run_id, 0
            session.add(lease)
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
            node_row = lock_nodes(session, [lease.node])[lease.node]
            others = [it for it in live_leases(session, [lease.node]) if it.lease_id != lease_id]
            headroom = compute_headroom(node_record(node_row).node, others, reading)
            held = {gpu.uuid for gpu in _lease(session, lease).gpus}
            # The GPUs it holds, which its prediction is about, if they will do.
            own = replace(headroom, gpus=tuple(it for it in headroom.gpus if it.uuid in held))
            decision = judge(demand, own, utilisation_limit=utilisation_limit)
            if isinstance(decision, Wait):
                decision = judge(demand, headroom, utilisation_limit=utilisation_limit)
            if isinstance(decision, Wait):
                return decision
            moment = now(session)
            lease.host_memory_bytes, lease.cpus = demand.host_memory_bytes, demand.cpus
            lease.disk_bytes = demand.disk_bytes
            lease.expires_at = moment + timedelta(seconds=ttl_s)
            if predicted_high_s is not None:
                lease.predicted_end_at = moment + timedelta(seconds=predicted_high_s)
            session.exec(delete(LeaseGpuRow).where(col(LeaseGpuRow.lease_id) == lease_id))
            _grant_gpus(session, lease, decision)
            session.add(lease)
            session.flush()
            return _lease(session, lease)

    def renew(self, lease_id: int, token: str, ttl_s: float) -> None:
        """Move the expiry, also of what the run's other ranks have yet to take.

        Raises:
            LeaseLost: It is released or somebody else's.
        """
        with self._database.transaction() as session:
            lease = _held(session, lease_id, token)
            for each in leases_of(session, lease.run_id):
                each.expires_at = now(session) + timedelta(seconds=ttl_s)
                session.add(each)

    def release(self, run_id: str) -> bool:
        """Release the run's leases and ports, once its container is gone. Idempotent.

        What its other ranks have not taken goes too: nothing runs there yet.
        """
        with self._database.transaction() as session:
            leases = leases_of(session, run_id)
            for lease in leases:
                _release(session, lease)
            return bool(leases)

    def release_untaken(self, node: str, ttl_s: float) -> list[str]:
        """Release what gangs held on *node* for ranks, and did not renew for *ttl_s* more.

        Returns:
            The runs of these gangs.
        """
        with self._database.transaction() as session:
            query = select(LeaseRow).where(
                LeaseRow.node == node,
                LeaseRow.gang_rank > 0,
                col(LeaseRow.released_at).is_(None),
                col(LeaseRow.expires_at) < now(session) - timedelta(seconds=ttl_s),
            )
            rows = session.exec(query.with_for_update()).all()
            for row in rows:
                _release(session, row)
            return [row.run_id for row in rows]

    def release_node(self, node: str) -> None:
        """Release all that is held on *node*, whose machine does not come back."""
        with self._database.transaction() as session:
            held = LeaseRow.node == node, col(LeaseRow.released_at).is_(None)
            for row in session.exec(select(LeaseRow).where(*held).with_for_update()).all():
                _release(session, row)

    def give_back(self, run_id: str, token: str) -> bool:
        """Undo a claim before anything started: same attempt, back to the line.

        Nothing for a part of a gang: it is no run that could wait by itself.
        """
        with self._database.transaction() as session:
            run = session.get(RunRow, run_id, with_for_update=True)
            if run is not None and run.gang_id is not None:
                return False
            lease = live_lease(session, run_id)
            if lease is not None and lease.token != token:
                return False  # it was given back before, and is another's claim now
            for each in leases_of(session, run_id):
                _release(session, each)
            if run is None or run.state != RunState.CLAIMED.value:
                return False
            move(run, RunState.WAITING)
            run.claimed_at = None
            if _ranks_begun(session, run):
                note_end(session, run, _BEGUN_WITHOUT_ITS_HEAD, None)
                run.attempt += 1  # they belong to this one, and end with it
            session.add(run)
            return True

    def live(self, node: str | None = None) -> list[Lease]:
        """Unreleased leases, expired ones too; of one node, or of all."""
        with self._database.transaction() as session:
            every = (row.name for row in session.exec(of_the_site()))
            names = [node] if node is not None else list(every)
            return live_leases(session, names)

    def of_run(self, run_id: str) -> Lease | None:
        """The run's own unreleased lease."""
        with self._database.transaction() as session:
            row = live_lease(session, run_id)
            return None if row is None else _lease(session, row)

    def untaken(self, run_id: str) -> list[Lease]:
        """What a gang holds for ranks that have not begun yet, by rank."""
        with self._database.transaction() as session:
            rows = leases_of(session, run_id)
            return [_lease(session, row) for row in rows if row.gang_rank > 0]

    def expiries(self, run_ids: Sequence[str]) -> dict[str, datetime]:
        """When the own live lease of each run expires; nothing of those that have none."""
        with self._database.transaction() as session:
            query = select(LeaseRow.run_id, LeaseRow.expires_at).where(
                col(LeaseRow.run_id).in_(run_ids),
                LeaseRow.gang_rank == 0,
                col(LeaseRow.released_at).is_(None),
            )
            return dict(session.exec(query).all())

    def every_of_run(self, run_id: str) -> list[Lease]:
        """The run's leases, of all its attempts, released ones too; without released ports."""
        with self._database.transaction() as session:
            query = select(LeaseRow).where(LeaseRow.run_id == run_id).order_by("lease_id")
            return [_lease(session, row) for row in session.exec(query).all()]


def lock_nodes(session: Session, names: Sequence[str]) -> dict[str, NodeRow]:
    """Hold the nodes' rows until the transaction ends; on SQLite the transaction itself does.

    All who lock several do so in one order, so that none waits for another in a ring.
    """
    query = select(NodeRow).where(col(NodeRow.name).in_(names)).order_by("name")
    return {row.name: row for row in session.exec(query.with_for_update())}


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


def _grant_gpus(session: Session, lease: LeaseRow, admitted: Admit) -> None:
    session.add_all(
        LeaseGpuRow(
            lease_id=lease.lease_id or 0,  # flushed, so the database has numbered it
            uuid=gpu.uuid,
            memory_bytes=gpu.memory_bytes,
            sharing=gpu.sharing.value,
            utilisation_frac=gpu.utilisation_frac,
        )
        for gpu in admitted.gpus
    )


def _grant_ports(session: Session, lease: LeaseRow, ports: Sequence[int]) -> None:
    session.add_all(
        LeasePortRow(lease_id=lease.lease_id or 0, port=port, node=lease.node) for port in ports
    )
    session.flush()


def _ranks_begun(session: Session, run: RunRow) -> bool:
    query = select(RunRow.run_id).where(RunRow.gang_id == run.run_id, RunRow.attempt == run.attempt)
    return session.exec(query).first() is not None


def _meeting_port(session: Session, node: str) -> int:
    """A port of *node* that no lease has."""
    query = select(LeasePortRow.port).where(LeasePortRow.node == node)
    taken = set(session.exec(query))
    return next(port for port in count(FIRST_MEETING_PORT) if port not in taken)


def _rank_run(gang: RunRow, lease: LeaseRow, run_id: str) -> RunRow:
    """A rank as a claimed run: never repeated or stopped for others by itself."""
    name = rank_name(gang.name, lease.gang_rank)
    return RunRow(
        run_id=run_id,
        name=name,
        owner=gang.owner,
        team=gang.team,
        pool=gang.pool,
        queue=lease.node,
        priority=gang.priority,
        gang_id=gang.run_id,
        gang_rank=lease.gang_rank,
        job={**gang.job, "name": name, "retries": 0, "preemptible": False},
        state=RunState.CLAIMED.value,
        attempt=lease.attempt,
        node=lease.node,
        submitted_at=gang.submitted_at,
        claimed_at=lease.granted_at,
        prediction=gang.prediction,
        demand=gang.demand,
        demand_override=gang.demand_override,
    )


def _release(session: Session, lease: LeaseRow) -> None:
    lease.released_at = now(session)
    session.add(lease)
    # The ports' rows go, so that the unique constraint guards live ones only.
    session.exec(delete(LeasePortRow).where(col(LeasePortRow.lease_id) == lease.lease_id))


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
        disk_bytes=row.disk_bytes,
        gang_rank=row.gang_rank,
    )
