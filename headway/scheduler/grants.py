"""What a plan starts and stops, claimed and marked in the ledger in the leader's term."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from headway.errors import LeaseLost
from headway.forecast import Forecaster
from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import NodeRecord, RunRecord
from headway.ledger.runs import Reason
from headway.model.lease import Demand, Lease, Resource
from headway.model.run import Prediction
from headway.model.term import Term
from headway.policy.claims import CLAIM_LIMIT_S, claim_room
from headway.policy.fit import WaitingRun
from headway.policy.gang_end import SILENT_S
from headway.policy.plan import Plan, Start
from headway.scheduler.limits import Gates, QueueCounts
from headway.site import Site


@dataclass(frozen=True, slots=True)
class Granted:
    """What of a plan was claimed."""

    run_ids: tuple[str, ...] = ()
    held_up: frozenset[str] = frozenset()
    """Nodes on which more would start, but for claims that no flow process has taken up yet."""


def grant_starts(site: Site, term: Term, made: Plan, seen: PoolSnapshot, gates: Gates) -> Granted:
    """Claim what *made* starts, each run in a transaction of its own.

    Args:
        site: The scheduler's.
        term: In which it leads the pool.
        made: The plan.
        seen: What it was made from.
        gates: Limits that an operator has set.

    Raises:
        TermOver: Another scheduler leads the pool by now; what was granted before stays.
    """
    started, held_up = list[str](), set[str]()
    counts, room, silent = QueueCounts.of(seen.holders), rooms(seen), silent_nodes(seen)
    starts = [entry for entry in made.entries if isinstance(entry, Start)]
    if not starts:
        return Granted()
    terms, ranges = Forecaster(site).lease_terms(None), site.port_ranges
    records = site.ledger.runs.of([start.run_id for start in starts])
    for start in starts:
        run, node = start.run, start.admits[0].node  # of a gang, rank 0's
        if room[node] <= 0:
            held_up.add(node)
            continue
        if not counts.may_start(run.queue, gates):
            continue
        if not silent.isdisjoint(admit.node for admit in start.admits):
            continue
        if (record := records.get(run.run_id)) is None:
            continue  # removed a moment ago
        demand, said = _as_planned(run, record)
        if demand is None or said is None:
            continue
        answer = site.ledger.leases.admit(
            run.run_id,
            node,
            demand,
            said=said if said.sizes else None,
            term=term,
            others=[admit.node for admit in start.admits[1:]],
            port_ranges=ranges,
            start_limit_s=CLAIM_LIMIT_S,
            **terms | {"predicted_high_s": said.runtime_high_s},
        )
        if isinstance(answer, Lease):
            started.append(run.run_id)
            counts.add(run.queue)
            room[node] -= 1
        elif answer.resource is Resource.PORTS:  # of its team, or of other programs: no plan knows
            why = Reason(run.run_id, answer.resource, answer.reason, None)
            site.ledger.runs.set_reasons([why], term)
    return Granted(tuple(started), frozenset(held_up))


def _as_planned(run: WaitingRun, record: RunRecord) -> tuple[Demand | None, Prediction | None]:
    """What *run* demands at the size that was planned, and what is said of it at that size.

    The plan goes by what the scheduler has kept. A flow that gave its place back may have found
    another demand since.
    """
    said = record.prediction
    if said is None or not said.sizes:
        return record.demand, said
    size = (run.nodes, run.gpus)
    found = next((s for s in said.sizes if (s.demand.nodes, s.demand.gpus) == size), None)
    return (None, None) if found is None else (found.demand, said.of_size(found))


def silent_nodes(seen: PoolSnapshot) -> set[str]:
    """Nodes that may have died a moment ago: nobody there would take a grant up."""
    return {
        record.node.name
        for record in seen.nodes
        if (seen.at - record.heartbeat_at).total_seconds() > SILENT_S
    }


def give_back_untaken(site: Site, seen: PoolSnapshot) -> None:
    """Give back what no flow process took up: in time, or on a node that is silent.

    A flow process that wakes up later finds that it has no lease.
    """
    silent = silent_nodes(seen)
    for lease in seen.leases:
        if lease.start_by is not None and (lease.start_by < seen.at or lease.node in silent):
            with suppress(LeaseLost):  # somebody else was faster
                site.ledger.leases.give_back(lease.fence, start_by=lease.start_by)


def rooms(seen: PoolSnapshot) -> dict[str, int]:
    """How many runs more each node may be granted now: see `claim_room`."""
    untaken = Counter(each.node for each in seen.leases if each.start_by is not None)
    return {record.node.name: room_of(record, untaken[record.node.name]) for record in seen.nodes}


def room_of(record: NodeRecord, untaken: int) -> int:
    """The same of one node with so many claims that no flow process has taken up."""
    slots = None if record.reading is None else record.reading.slots
    # Those that its worker has submitted already are counted twice, until it reports again.
    left = None if slots is None else slots - untaken
    return claim_room(record.node.capacity.cpus, untaken, left)


def mark_stops(
    site: Site, term: Term, made: Plan, seen: PoolSnapshot, growing: Iterator[str]
) -> set[str]:
    """Mark what is to stop for others, and one of those that go on larger; where they run.

    Raises:
        TermOver: Another scheduler leads the pool by now.
    """
    held = {lease.run_id: lease for lease in seen.leases if lease.gang_rank == 0}
    preempt = site.ledger.runs.preempt
    stops = [each for each in made.preempts if each.run_id in held]
    nodes = {
        held[each.run_id].node
        for each in stops
        if preempt(held[each.run_id].fence, each.for_run_id, term)
    }
    grows = (run for run in growing if run in held and preempt(held[run].fence, run, term))
    return nodes | {held[run].node for run in (next(grows, None),) if run is not None}
