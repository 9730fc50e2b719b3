"""Leases: the only place where resources are granted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from secrets import token_hex
from types import MappingProxyType

from sqlalchemy import delete
from sqlmodel import col, select

from headway.errors import LeaseLost
from headway.ledger.admitting import admitted, held_up, ports_there
from headway.ledger.attempts import note_claim, note_end
from headway.ledger.calls import call
from headway.ledger.codec import record
from headway.ledger.columns import from_now, now
from headway.ledger.fences import ended_before, fenced, given_back_before, leased
from headway.ledger.gang_rows import rank_run, ranks_begun
from headway.ledger.leaders import in_term
from headway.ledger.lease_reads import LeaseReads
from headway.ledger.lease_rows import (
    LIVE,
    grant,
    lease_from,
    live_lease,
    live_leases,
    lock_nodes,
    number,
    release_all,
)
from headway.ledger.nodes import keep_measured, node_record
from headway.ledger.run_rows import ask_for_least, move, run_row
from headway.ledger.tables import LeaseGpuRow, LeaseRow, RunRow
from headway.model.lease import Demand, Fence, Lease, Resource, Wait
from headway.model.node import NodeReading
from headway.model.number_range import NumberRange
from headway.model.run import GRANTED, Exit, ExitKind, Prediction, RunState
from headway.model.term import Term
from headway.policy.admission import judge
from headway.policy.headroom import compute_headroom

_BEGUN_WITHOUT_ITS_HEAD = Exit(
    ExitKind.INFRASTRUCTURE, None, "rank 0 was given back when other ranks had begun"
)
_NOT_BEGUN = Wait(Resource.TURN, "its flow process did not begin: it waits for a place again")


class Leases(LeaseReads):
    """The lease tables: what `LeaseReads` reads, and every change of them."""

    def admit(
        self,
        run_id: str,
        node: str,
        demand: Demand,
        *,
        term: Term,
        ttl_s: float,
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
            demand: What it needs there, and on each of *others*; their readings in the ledger can
                only make headroom smaller.
            term: In which the scheduler grants it. The database refuses a lease without it.
            ttl_s: The leases expire so long after their last renewal.
            others: Nodes of the ranks 1, 2, …
            port_ranges: Of the teams that have a range of their own: from it alone, and without
                one from none of these, come the ports that the job leaves to the node.
            utilisation_limit: See `policy.admission.judge`.
            predicted_high_s: Upper quantile of the runtime, for backfill.
            start_limit_s: Within so long a flow process has to `take_up` the claim.
            said: What is predicted with *demand*, where that is another of the sizes that the run
                may have than the one it waited with: both are kept with the claim.

        Returns:
            The lease on *node*, or why there is none.

        Raises:
            TermOver: Another scheduler leads the pool by now.
        """
        names = (node, *others)
        with self._database.transaction() as session:
            in_term(session, term)
            rows = lock_nodes(session, names)
            run = run_row(session, run_id, lock=True)
            missing = next(
                (name for name in names if name not in rows or rows[name].removed_at), None
            )
            if missing is not None:
                return Wait(Resource.NODE, f"node {missing} has not joined this site")
            if (held := held_up(session, run)) is not None:
                return held
            there = [rows[name] for name in names]
            admits = admitted(session, demand, there, utilisation_limit)
            if isinstance(admits, Wait):
                return admits
            ports = ports_there(session, run, demand, there, port_ranges)
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
                    term=term.number,
                    token=token_hex(16),
                    host_memory_bytes=demand.host_memory_bytes,
                    cpus=demand.cpus,
                    disk_bytes=demand.disk_bytes,
                    granted_at=moment,
                    expires_at=expires_at,
                    start_by=_after(moment, start_limit_s) if rank == 0 else None,
                    predicted_end_at=_after(moment, predicted_high_s),
                )
                for rank, (name, decision) in enumerate(zip(names, admits, strict=True))
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
            call(session, node)  # at once: its program begins while others are granted
            here = ports.get(node, {})
            return record(Lease, leases[0], gpus=tuple(admits[0].gpus), ports=here)

    def take_up(self, fence: Fence) -> None:
        """A flow process begins the attempt: its claim has no deadline any more. Idempotent.

        Raises:
            LeaseLost: The claim was given back, or is another's now.
        """
        with self._database.transaction() as session:
            leased(session, fence).start_by = None

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
        """Judge a lease anew for *demand*, its own share left out; on `Wait` it stays as it is.

        Then the node's *reading* is kept: by an older one the same would be granted again at once.

        Raises:
            LeaseLost: Released, or another token holds it.
        """
        with self._database.transaction() as session:
            seen = live_lease(session, fence.run_id)
            rows = lock_nodes(session, [seen.node] if seen else [])  # before the run, as `admit`
            lease, measured = leased(session, fence), reading
            node, lease_id = node_record(rows[lease.node]).node, number(lease)
            all_here = {it.lease_id: it for it in live_leases(session, [lease.node])}
            own_lease = all_here.pop(lease_id)
            if reading is not None:  # its own program may listen already
                foreign = set(reading.busy_ports) - set(own_lease.ports.values())
                reading = replace(reading, busy_ports=tuple(foreign))
            headroom = compute_headroom(
                node, [*all_here.values()], reading, utilisation_limit=utilisation_limit
            )
            held = {gpu.uuid for gpu in own_lease.gpus}
            # The GPUs it holds, which its prediction is about, if they will do.
            own = replace(headroom, gpus=[it for it in headroom.gpus if it.uuid in held])
            decision = judge(demand, own)
            if isinstance(decision, Wait):
                decision = judge(demand, headroom)
            if isinstance(decision, Wait):
                keep_measured(rows[lease.node], measured)
                return decision
            moment = now(session)
            lease.host_memory_bytes, lease.cpus = demand.host_memory_bytes, demand.cpus
            lease.disk_bytes = demand.disk_bytes
            # Never earlier: its node's guard goes by what it was told before.
            lease.expires_at = max(lease.expires_at, moment + timedelta(seconds=ttl_s))
            if predicted_high_s is not None:
                lease.predicted_end_at = _after(moment, predicted_high_s)
            gpus = tuple(decision.gpus)
            if set(gpus) != set(own_lease.gpus):
                session.exec(delete(LeaseGpuRow).where(col(LeaseGpuRow.lease_id) == lease_id))
                grant(session, lease, gpus, {})
            return record(Lease, lease, gpus=gpus, ports=own_lease.ports)

    def grow(self, fence: Fence, host_bytes: int) -> int:
        """Promise a lease up to *host_bytes* of host memory, as far as its node has them.

        One transaction that holds the node's row, as `admit`. Nothing else of the lease changes,
        and it has no less than before; a closed node, too, gives what it has left.

        Returns:
            Its host memory from now on, in bytes.

        Raises:
            LeaseLost: Released, or another token holds it.
        """
        with self._database.transaction() as session:
            seen = live_lease(session, fence.run_id)
            rows = lock_nodes(session, [seen.node] if seen else [])
            lease = leased(session, fence)
            there = node_record(rows[lease.node])
            room = compute_headroom(there.node, live_leases(session, [lease.node]), there.reading)
            more_bytes = min(host_bytes - lease.host_memory_bytes, int(room.host.free_bytes))
            lease.host_memory_bytes += max(more_bytes, 0)
            return lease.host_memory_bytes

    def release(self, fence: Fence) -> None:
        """Release the attempt's lease and ports, once its container is gone. Idempotent.

        What its other ranks have not taken goes too: nothing runs there yet.
        What another attempt or another grant holds stays as it is.
        """
        with self._database.transaction() as session:
            run_row(session, fence.run_id, lock=True)
            own = col(LeaseRow.attempt) == fence.attempt, col(LeaseRow.token) == fence.token
            held = select(LeaseRow.run_id).where(LIVE, LeaseRow.run_id == fence.run_id, *own)
            of_run = held.where(LeaseRow.gang_rank == 0).correlate(None).scalar_subquery()
            release_all(session, LeaseRow.run_id == of_run)

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

    def release_node(self, node: str) -> None:
        """Release all that is held on *node*, whose machine does not come back."""
        with self._database.transaction() as session:
            release_all(session, LeaseRow.node == node)

    def give_back(
        self, fence: Fence, why: Wait = _NOT_BEGUN, *, start_by: datetime | None = None
    ) -> bool:
        """Undo a claim before anything started: same attempt, back to the queue. Idempotent.

        Nothing for a part of a gang: it is no run that could wait by itself.

        Args:
            fence: Of the claim.
            why: What the run waits for again, until it is planned.
            start_by: Of a claim that nobody had taken up when it was read: only while that is so.

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
            _, lease = fenced(session, fence, run)
            if run.state is not RunState.CLAIMED:
                return run.state is RunState.WAITING
            if start_by is not None and (lease is None or lease.start_by != start_by):
                return False
            release_all(session, LeaseRow.run_id == fence.run_id)
            move(run, RunState.WAITING)
            ask_for_least(run)
            run.claimed_at, run.resource, run.reason = None, why.resource, why.reason
            if ranks_begun(session, run):
                note_end(session, run, _BEGUN_WITHOUT_ITS_HEAD, None)
                run.attempt += 1  # they belong to this one, and end with it
            return True


def _after(moment: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else moment + timedelta(seconds=seconds)
