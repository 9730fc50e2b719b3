"""Runs of this node that stop at a checkpoint, to go on at a larger size where room came free."""

from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import RunRecord
from headway.model.job_text import kept_job
from headway.model.lease import Resource
from headway.model.run import RunState
from headway.policy.decide import Held
from headway.policy.fit import WaitingRun
from headway.policy.plan import Plan, Stay
from headway.policy.pool import Pool
from headway.policy.preempt import Runner
from headway.policy.sizing import Standing, grows
from headway.run.here import checkpoint_age_s
from headway.scheduler.snapshot import Known, left_of, node_view, running_run
from headway.scheduler.waiting import Waiting
from headway.site import Site


def run_to_grow(
    site: Site, made: Plan, seen: PoolSnapshot, waiting: Waiting, known: Known
) -> list[str]:
    """The run of this node that is told now to stop and go on larger; at most one in a pass.

    None while somebody waits for room or is being stopped: whoever waits has it first, and two
    that grow at once would count on the same room. What its program has written and when is
    known on the node that leads it alone.
    """
    waits = any(
        not (isinstance(entry, Stay) and entry.wait.resource is Resource.QUOTA)
        for entry in made.entries
    )
    if waits or any(record.preempted_for for record in seen.holders):
        return []
    mine = [record for record in seen.holders if _may_grow(site, record)]
    if not mine:
        return []
    running = [
        running_run(r, seen, waiting.gates, known.said.get(r.run_id), known.usual)
        for r in seen.holders
    ]
    pool = Pool([node_view(record, seen) for record in seen.nodes], running, waiting.settings)
    board = pool.board()
    runners = {one.ask.run_id: one for one in pool.runners(board)}
    fences = {each.run_id: each.fence for each in seen.leases if each.gang_rank == 0}
    names = {record.node.name for record in seen.nodes}
    for record in mine:
        standing = _standing(site, record, seen, known)
        if standing is None or record.demand is None or record.run_id not in runners:
            continue
        ask, runner = waiting.as_waiting(record, record.demand, names), runners[record.run_id]
        found = grows(ask, runner, standing, board, seen.at.timestamp())
        if any(_within_quota(each, runner, runners, waiting) for each in found) and (
            site.ledger.runs.preempt(fences[record.run_id], record.run_id)
        ):
            return [record.run_id]
    return []


def _may_grow(site: Site, record: RunRecord) -> bool:
    """Whether it is led here, of several sizes, and goes on from a checkpoint when stopped."""
    said = record.prediction
    here = record.node == site.settings.node and record.gang_id is None
    several = said is not None and len(said.sizes) > 1
    return here and several and record.state is RunState.RUNNING and record.goes_on


def _standing(site: Site, record: RunRecord, seen: PoolSnapshot, known: Known) -> Standing | None:
    """How far it is; None where its log does not tell, or it wrote no checkpoint since it began."""
    said, job = known.said.get(record.run_id), kept_job(record.job)
    told = said is not None and said.attempt == record.attempt and said.remaining_s is not None
    left = left_of(record, said, known.usual, seen.at) if told else None
    age_s = checkpoint_age_s(site, record.run_id)
    begun, claimed = record.started_at, record.claimed_at
    if left is None or age_s is None or job is None or begun is None or claimed is None:
        return None
    ran_s = (seen.at - begun).total_seconds()
    if age_s > ran_s:
        return None
    restart_s = (begun - claimed).total_seconds() + job.stop_grace
    return Standing(left.median_s, age_s, restart_s)


def _within_quota(
    ask: WaitingRun, own: Runner, runners: dict[str, Runner], waiting: Waiting
) -> bool:
    """Whether its team may hold *ask* in the place of what *own* holds."""
    held = Held()
    for one in runners.values():
        if one.ask.team == ask.team and one is not own:
            held.add(one.ask)
    return held.exceeded(ask, waiting.settings.team(ask.team)) is None
