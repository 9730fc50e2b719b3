"""What of a plan starts or stops on this node: claimed in the ledger, by live readings."""

from dataclasses import dataclass

from headway.forecast import lease_terms
from headway.ledger.pools import PoolSnapshot
from headway.model.lease import Lease, Resource
from headway.node.flowrun import live_flow
from headway.policy.claims import CLAIM_LIMIT_S, claim_room
from headway.policy.gang_end import SILENT_S
from headway.policy.plan import Plan, Start
from headway.runtime.listening import listening_ports
from headway.scheduler.limits import Gates, QueueCounts
from headway.site import Site
from headway.this_node import read_node


@dataclass(frozen=True, slots=True)
class Granted:
    """What of a plan was claimed on this node."""

    run_ids: tuple[str, ...] = ()
    held_up: bool = False
    """More would start, but for claims that no flow process has taken up yet."""


def grant_starts(
    site: Site, made: Plan, seen: PoolSnapshot, gates: Gates, slots: int | None = None
) -> Granted:
    """Claim what *made* starts on this node.

    Args:
        site: This node's.
        made: The plan.
        seen: What it was made from.
        gates: Limits that an operator has set.
        slots: How many runs this worker may submit now; None where it has no limit.

    Returns:
        The runs that got their leases.
    """
    node, started = site.settings.node, list[str]()
    starts = [entry for entry in made.entries if isinstance(entry, Start)]
    mine = [start for start in starts if start.admits[0].node == node]  # of a gang, rank 0
    reading = read_node(site) if mine else None
    counts = QueueCounts.of(seen.holders)
    room = _claim_room(site, seen, slots)
    busy = listening_ports() if any(start.run.ports for start in mine) else frozenset()
    for start in mine:
        run = start.run
        if len(started) >= room:
            return Granted(tuple(started), held_up=True)
        if not counts.may_start(run.queue, gates) or _is_silent(start, seen):
            continue
        if live_flow(site.settings.state_dir, run.run_id) is not None:
            continue  # the process of its last attempt is leaving; its end wakes the worker
        # The plan goes by what this worker has kept. A flow that gave its place back, or the
        # worker that speaks for the pool, may have found another demand since.
        record = site.ledger.runs.get(run.run_id)
        demand, said = record.demand, record.prediction
        if said is not None and said.sizes:  # the plan has chosen one of them
            size = (run.nodes, run.gpus)
            sized = (s for s in said.sizes if (s.demand.nodes, s.demand.gpus) == size)
            found = next(sized, None)
            demand, said = (None, None) if found is None else (found.demand, said.of_size(found))
        if demand is None or said is None:
            continue
        answer = site.ledger.leases.admit(
            run.run_id,
            node,
            demand,
            said=said if said.sizes else None,
            reading=reading,
            others=[admit.node for admit in start.admits[1:]],
            port_ranges=site.port_ranges,
            busy_ports=busy,
            start_limit_s=CLAIM_LIMIT_S,
            **lease_terms(site, said.runtime_high_s),
        )
        if isinstance(answer, Lease):
            started.append(run.run_id)
            counts.add(run.queue)
        elif answer.resource is Resource.PORTS:  # of its team, or of other programs: no plan knows
            site.ledger.runs.set_reason(
                run.run_id, answer.resource, answer.reason, expected_start_at=None
            )
    return Granted(tuple(started))


def _is_silent(start: Start, seen: PoolSnapshot) -> bool:
    """Whether a part of a gang would go to a node that its attempt before may just have lost.

    It is not heard of, and not taken for lost yet either: then the plan leaves it out.
    """
    parts = {admit.node for admit in start.admits[1:]}
    nodes = (record for record in seen.nodes if record.node.name in parts)
    return any((seen.at - each.heartbeat_at).total_seconds() > SILENT_S for each in nodes)


def _claim_room(site: Site, seen: PoolSnapshot, slots: int | None) -> int:
    here = site.settings.node
    cpus = sum(record.node.capacity.cpus for record in seen.nodes if record.node.name == here)
    untaken = [each for each in seen.leases if each.node == here and each.start_by is not None]
    return claim_room(cpus, len(untaken), slots)


def runs_to_stop(site: Site, made: Plan, seen: PoolSnapshot) -> list[str]:
    """Runs of this node that are to stop for others: told now, or told before and still there."""
    mine = [lease for lease in seen.leases if lease.node == site.settings.node]
    here = {lease.run_id: lease.fence for lease in mine if lease.gang_rank == 0}
    told = [r.run_id for r in seen.holders if r.run_id in here and r.preempted_for]
    new = [each for each in made.preempts if each.run_id in here]
    preempt = site.ledger.runs.preempt
    return told + [each.run_id for each in new if preempt(here[each.run_id], each.for_run_id)]


def concerned(made: Plan, seen: PoolSnapshot) -> set[str]:
    """The nodes on which *made* starts or stops something."""
    starts = {entry.admits[0].node for entry in made.entries if isinstance(entry, Start)}
    stops = {each.run_id for each in made.preempts}
    return starts | {lease.node for lease in seen.leases if lease.run_id in stops}
