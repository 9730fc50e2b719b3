"""Leases: the only place where resources are granted."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from secrets import token_hex
from types import MappingProxyType

from sqlalchemy import delete, exists, func, or_
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.errors import LeaseLost
from headway.ledger.array_rows import array_is_full
from headway.ledger.attempts import note_claim, note_end
from headway.ledger.calls import call
from headway.ledger.columns import db_now, from_now, now
from headway.ledger.database import Repository
from headway.ledger.fences import ended_before, fenced, given_back_before, leased
from headway.ledger.following import following
from headway.ledger.gang_rows import rank_run, ranks_begun
from headway.ledger.leaders import in_term
from headway.ledger.lease_rows import (
    LIVE,
    grant,
    lease_from,
    leases_from,
    leases_of,
    live_lease,
    live_leases,
    lock_nodes,
    number,
    release_all,
)
from headway.ledger.nodes import node_record, of_the_site
from headway.ledger.run_rows import ask_for_least, move, run_row
from headway.ledger.tables import LeaseGpuRow, LeasePortRow, LeaseRow, NodeRow, RunRow
from headway.model.lease import ANY_PORT, Demand, Fence, Lease, Resource, Wait
from headway.model.node import NodePorts, NodeReading, PortUse
from headway.model.number_range import NumberRange
from headway.model.run import GRANTED, Exit, ExitKind, Prediction, RunState
from headway.model.session import needs_free_port
from headway.model.term import Term
from headway.policy.admission import judge
from headway.policy.headroom import compute_headroom
from headway.policy.ports import leased_ports

_BEGUN_WITHOUT_ITS_HEAD = Exit(
    ExitKind.INFRASTRUCTURE, None, "rank 0 was given back when other ranks had begun"
)


class Leases(Repository):
    """The lease tables."""

    def admit(
        self,
        run_id: str,
        node: str,
        demand: Demand,
        *,
        reading: NodeReading | None,
        ttl_s: float,
        term: Term | None = None,
        others: Sequence[str] = (),
        port_ranges: Mapping[str, NumberRange] = MappingProxyType({}),
        utilisation_limit: float = 1.0,
        predicted_high_s: float | None = None,
        start_limit_s: float | None = None,
        said: Prediction | None = None,
    ) -> Lease | Wait:
        """Grant *demand* on *node*, and on *others*, to a waiting run, or say what is missing.

        One transaction that holds the nodes' rows: whoever comes second sees
        the first one's lease. A run that is not waiting gets no second lease.
        A gang gets all of its leases or none; those on *others* wait there
        for their rank to `take` them, and each has a port more: on the first the
        ranks meet. So has the lease of a session, which serves it.

        Args:
            run_id: A run in the queue.
            node: Where it would run; of a gang, where rank 0 would.
            demand: What it needs there, and on each of *others*.
            reading: *node* now; can only make headroom smaller. The others go
                by what the ledger has of them.
            ttl_s: The leases expire so long after their last renewal.
            term: In which the scheduler grants it, by the ledger's readings, and calls *node*; None
                where a flow asks for itself.
            others: Nodes of the ranks 1, 2, …
            port_ranges: Of the teams that have a range of their own: from it alone, and without
                one from none of these, come the ports that the job leaves to the node.
            utilisation_limit: See `policy.admission.judge`.
            predicted_high_s: Upper quantile of the runtime, for backfill.
            start_limit_s: Within so long a flow process has to `take_up` the claim; None
                where one asks for itself.
            said: What is predicted with *demand*, where that is another of the sizes that the run
                may have than the one it waited with: both are kept with the claim.

        Returns:
            The lease on *node*, or why there is none.

        Raises:
            TermOver: Another scheduler leads the pool by now.
        """
        names = (node, *others)
        if others:  # one part that gives memory back would stop all of them
            demand = replace(demand, may_borrow=False)
        with self._database.transaction() as session:
            in_term(session, term)
            rows = lock_nodes(session, names)
            run = run_row(session, run_id, lock=True)
            missing = next(
                (name for name in names if name not in rows or rows[name].removed_at), None
            )
            if missing is not None:
                return Wait(Resource.NODE, f"node {missing} has not joined this site")
            if (held := _held_up(session, run)) is not None:
                return held
            admits, busy = [], {}
            for name in names:
                record = node_record(rows[name])
                seen = reading if name == node and term is None else record.reading
                busy[name] = seen.busy_ports if seen is not None else ()
                live = live_leases(session, [name])
                headroom = compute_headroom(
                    record.node, live, seen, utilisation_limit=utilisation_limit
                )
                decision = judge(demand, headroom)
                if isinstance(decision, Wait):
                    return decision
                admits.append(decision)
            there = [rows[name] for name in names]
            ports = _ports(session, run, demand, there, busy=busy, ranges=port_ranges)
            if isinstance(ports, Wait):
                return ports
            moment = now(session)
            expires_at = moment + timedelta(seconds=ttl_s)
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
                    expires_at=expires_at,
                    start_by=_after(moment, start_limit_s) if rank == 0 else None,
                    predicted_end_at=_after(moment, predicted_high_s),
                    lent=admitted.lent,
                )
                for rank, (name, admitted) in enumerate(zip(names, admits, strict=True))
            ]
            session.add_all(leases)
            session.flush()
            for lease, decision in zip(leases, admits, strict=True):
                grant(session, lease, decision.gpus, ports.get(lease.node, {}))
            move(run, RunState.CLAIMED)
            run.node, run.claimed_at = node, moment
            if said is not None:
                run.demand, run.prediction = demand, said
            note_claim(session, run)
            run.resource, run.reason, run.expected_start_at = None, "", None
            session.flush()
            if term is not None:
                call(session, node)  # each at once: its program begins while others are granted
            return lease_from(session, leases[0])

    def take_up(self, fence: Fence) -> None:
        """A flow process begins the attempt: its claim has no deadline any more. Idempotent.

        Raises:
            LeaseLost: The claim was given back, or is another's now.
        """
        with self._database.transaction() as session:
            leased(session, fence).start_by = None

    def unstarted(self, node: str) -> list[Lease]:
        """Claims on *node* that no flow process has taken up yet, oldest first."""
        with self._database.reading() as session:
            return leases_from(session, session.exec(_unstarted(node)).all())

    def untaken_claims(self, nodes: Collection[str]) -> dict[str, int]:
        """How many of them there are, by node."""
        with self._database.reading() as session:
            waits = col(LeaseRow.node).in_(nodes), LIVE, col(LeaseRow.start_by).is_not(None)
            counted = select(LeaseRow.node, func.count()).where(*waits).group_by(LeaseRow.node)
            return dict(session.exec(counted).all())

    def overdue(self, node: str) -> list[Lease]:
        """Those claims on *node* whose deadline has passed by the database's clock."""
        with self._database.reading() as session:
            late = _unstarted(node).where(col(LeaseRow.start_by) < db_now())
            return leases_from(session, session.exec(late).all())

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
            gang = run_row(session, gang_id, lock=True)
            taken = live_lease(session, run_id)
            if taken is not None:
                return lease_from(session, taken)
            lease = session.get(LeaseRow, lease_id, with_for_update=True, populate_existing=True)
            held = lease is not None and lease.run_id == gang_id and lease.released_at is None
            over = gang.attempt != attempt or gang.state not in GRANTED
            if lease is None or not held or lease.gang_rank == 0 or over:
                why = f"attempt {attempt} of the gang is over, or its part here began elsewhere"
                raise LeaseLost(gang_id, attempt, why)
            session.add(rank_run(gang, lease, run_id))
            session.flush()
            lease.run_id, lease.gang_rank = run_id, 0
            session.flush()
            return lease_from(session, lease)

    def resize(
        self,
        fence: Fence,
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
            seen = live_lease(session, fence.run_id)
            rows = lock_nodes(session, [seen.node] if seen else [])  # before the run, as `admit`
            lease = leased(session, fence)
            node, lease_id = node_record(rows[lease.node]).node, number(lease)
            others = [it for it in live_leases(session, [lease.node]) if it.lease_id != lease_id]
            own_lease = lease_from(session, lease)
            if reading is not None:  # its own program may listen already
                foreign = set(reading.busy_ports) - set(own_lease.ports.values())
                reading = replace(reading, busy_ports=tuple(foreign))
            headroom = compute_headroom(node, others, reading, utilisation_limit=utilisation_limit)
            held = {gpu.uuid for gpu in own_lease.gpus}
            # The GPUs it holds, which its prediction is about, if they will do.
            own = replace(headroom, gpus=[it for it in headroom.gpus if it.uuid in held])
            decision = judge(demand, own)
            if isinstance(decision, Wait):
                decision = judge(demand, headroom)
            if isinstance(decision, Wait):
                return decision
            moment = now(session)
            lease.host_memory_bytes, lease.cpus = demand.host_memory_bytes, demand.cpus
            lease.disk_bytes, lease.lent = demand.disk_bytes, decision.lent
            # Never earlier: its node's guard goes by what it was told before.
            lease.expires_at = max(lease.expires_at, moment + timedelta(seconds=ttl_s))
            if predicted_high_s is not None:
                lease.predicted_end_at = _after(moment, predicted_high_s)
            session.exec(delete(LeaseGpuRow).where(col(LeaseGpuRow.lease_id) == lease_id))
            grant(session, lease, decision.gpus, {})
            return lease_from(session, lease)

    def release(self, fence: Fence) -> None:
        """Release the attempt's lease and ports, once its container is gone. Idempotent.

        What its other ranks have not taken goes too: nothing runs there yet.
        What another attempt or another grant holds stays as it is.
        """
        with self._database.transaction() as session:
            run_row(session, fence.run_id, lock=True)
            lease = live_lease(session, fence.run_id)
            if lease is not None and (lease.attempt, lease.token) == (fence.attempt, fence.token):
                release_all(session, LeaseRow.run_id == fence.run_id)

    def release_untaken(self, pool: str, ttl_s: float) -> list[str]:
        """Release what gangs of *pool* held for ranks, and did not renew for *ttl_s* more.

        Returns:
            The runs of these gangs.
        """
        of_pool = col(LeaseRow.run_id).in_(select(RunRow.run_id).where(RunRow.pool == pool))
        expired = col(LeaseRow.expires_at) < from_now(-timedelta(seconds=ttl_s))
        with self._database.transaction() as session:
            rows = release_all(session, LeaseRow.gang_rank > 0, expired, of_pool)
            return [row.run_id for row in rows]

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
        with self._database.reading() as session:
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
                .order_by("lease_id")
            )
            return leases_from(session, session.exec(query).all())

    def release_node(self, node: str) -> None:
        """Release all that is held on *node*, whose machine does not come back."""
        with self._database.transaction() as session:
            release_all(session, LeaseRow.node == node)

    def forget_stray_ports(self) -> None:
        """Let go of the ports of released leases, which nothing else ever lets go of."""
        with self._database.transaction() as session:
            live = select(LeaseRow.lease_id).where(LIVE, LeaseRow.node == LeasePortRow.node)
            session.exec(delete(LeasePortRow).where(col(LeasePortRow.lease_id).not_in(live)))

    def give_back(self, fence: Fence) -> bool:
        """Undo a claim before anything started: same attempt, back to the queue. Idempotent.

        Nothing for a part of a gang: it is no run that could wait by itself.

        Returns:
            Whether the run waits; False when its container was started or it has ended.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            run = run_row(session, fence.run_id, lock=True)
            if run.gang_id is not None or ended_before(session, run, fence):
                return False
            if given_back_before(session, run, fence):
                return True
            fenced(session, fence)
            if run.state is not RunState.CLAIMED:
                return run.state is RunState.WAITING
            release_all(session, LeaseRow.run_id == fence.run_id)
            move(run, RunState.WAITING)
            ask_for_least(run)
            run.claimed_at = None
            if ranks_begun(session, run):
                note_end(session, run, _BEGUN_WITHOUT_ITS_HEAD, None)
                run.attempt += 1  # they belong to this one, and end with it
            return True

    def live(self, node: str | None = None) -> list[Lease]:
        """Unreleased leases, expired ones too; of one node, or of all."""
        with self._database.reading() as session:
            if node is not None:  # each node asks this often: not for the rows of all nodes
                return live_leases(session, [node])
            return live_leases(session, [row.name for row in session.exec(of_the_site())])

    def of_run(self, run_id: str) -> Lease | None:
        """The run's own unreleased lease."""
        with self._database.reading() as session:
            row = live_lease(session, run_id)
            return None if row is None else lease_from(session, row)

    def untaken(self, run_id: str) -> list[Lease]:
        """What a gang holds for ranks that have not begun yet, by rank."""
        with self._database.reading() as session:
            rows = [row for row in leases_of(session, run_id) if row.gang_rank > 0]
            return leases_from(session, rows)

    def expiries(self, run_ids: Sequence[str]) -> dict[str, datetime]:
        """When the own live lease of each run expires; nothing of those that have none."""
        with self._database.reading() as session:
            query = select(LeaseRow.run_id, LeaseRow.expires_at).where(
                col(LeaseRow.run_id).in_(run_ids),
                LeaseRow.gang_rank == 0,
                LIVE,
            )
            return dict(session.exec(query).all())

    def every_of_run(self, run_id: str) -> list[Lease]:
        """The run's leases, of all its attempts, released ones too; without released ports."""
        with self._database.reading() as session:
            query = select(LeaseRow).where(LeaseRow.run_id == run_id).order_by("lease_id")
            return leases_from(session, session.exec(query).all())


def _unstarted(node: str) -> SelectOfScalar[LeaseRow]:
    on_node = LeaseRow.node == node, LIVE, col(LeaseRow.start_by).is_not(None)
    return select(LeaseRow).where(*on_node).order_by("lease_id")


def _ports(
    session: Session,
    run: RunRow,
    demand: Demand,
    nodes: Sequence[NodeRow],
    *,
    busy: Mapping[str, Iterable[int]],
    ranges: Mapping[str, NumberRange],
) -> dict[str, dict[int, int]] | Wait:
    """By node, the ports that *run* gets there, see `leased_ports`; or why there are none.

    A gang has a port more on each of *nodes*; so has a session, which serves it.
    """
    is_gang, own = len(nodes) > 1, ranges.get(run.team)
    wanted = [port for port in demand.ports if port != ANY_PORT]
    if is_gang or needs_free_port(run.job):
        wanted.append(ANY_PORT)
    ports: dict[str, dict[int, int]] = {}
    for node in nodes if wanted else ():
        there = node.ports or NodePorts()
        leased = select(LeasePortRow.port).where(LeasePortRow.node == node.name)
        found = leased_ports(
            wanted,
            own or there.free,
            published=there.use is PortUse.PUBLISHED and not is_gang,
            taken={*session.exec(leased), *busy[node.name]},
            not_of=() if own else ranges.values(),
        )
        if found is None:
            why = f"all ports {own or there.free} of node {node.name} are taken"
            return Wait(Resource.PORTS, why)
        ports[node.name] = found
    return ports


def _held_up(session: Session, run: RunRow) -> Wait | None:
    """Why *run* may not start now, whatever room there is; None where it may."""
    if run.state is not RunState.WAITING or leases_of(session, run.run_id):
        return Wait(Resource.TURN, "it is claimed already, or its last attempt still ends")
    if run.suspended_at is not None:
        return Wait(Resource.TURN, "it is suspended: resume it on its page in Prefect")
    for _, followed in following(session, col(RunRow.run_id) == run.run_id):
        said = followed.says()
        if said is not None:
            return said if isinstance(said, Wait) else Wait(Resource.TURN, said.message)
    return array_is_full(session, run)


def _after(moment: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else moment + timedelta(seconds=seconds)
