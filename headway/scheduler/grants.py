"""What of a plan starts or stops on this node: claimed in the ledger, by live readings."""

from headway.forecast import lease_terms
from headway.ledger.pools import PoolSnapshot
from headway.model.lease import Lease
from headway.node.flowrun import live_flow
from headway.policy.plan import Plan, Start
from headway.scheduler.limits import Gates, QueueCounts
from headway.site import Site
from headway.this_node import read_node


def grant_starts(site: Site, made: Plan, seen: PoolSnapshot, gates: Gates) -> list[str]:
    """Claim what *made* starts on this node, and give the runs that got their leases."""
    node, started = site.settings.node, []
    starts = [entry for entry in made.entries if isinstance(entry, Start)]
    mine = [start for start in starts if start.admits[0].node == node]  # of a gang, rank 0
    reading = read_node(site) if mine else None
    counts = QueueCounts.of(seen.holders)
    for start in mine:
        run = start.run
        if not counts.may_start(run.queue, gates):
            continue
        if live_flow(site.settings.state_dir, run.run_id) is not None:
            continue  # the process of its last attempt is leaving; its end wakes the worker
        # The plan goes by what this worker has kept. A flow that gave its place back, or the
        # worker that speaks for the pool, may have found another demand since.
        record = site.ledger.runs.get(run.run_id)
        if record.demand is None or record.prediction is None:
            continue
        answer = site.ledger.leases.admit(
            run.run_id,
            node,
            record.demand,
            reading=reading,
            others=[admit.node for admit in start.admits[1:]],
            **lease_terms(site, record.prediction.runtime_high_s),
        )
        if isinstance(answer, Lease):
            started.append(run.run_id)
            counts.add(run.queue)
    return started


def runs_to_stop(site: Site, made: Plan, seen: PoolSnapshot) -> list[str]:
    """Runs of this node that are to stop for others: told now, or told before and still there."""
    mine = [lease for lease in seen.leases if lease.node == site.settings.node]
    here = {lease.run_id: lease.fence for lease in mine if lease.gang_rank == 0}
    told = [r.run_id for r in seen.holders if r.run_id in here and r.preempted_for]
    new = [each for each in made.preempts if each.run_id in here]
    preempt = site.ledger.runs.preempt
    return told + [each.run_id for each in new if preempt(here[each.run_id], each.for_run_id)]
