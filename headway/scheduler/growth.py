"""Runs that stop at a checkpoint, to go on at a larger size where room came free."""

from collections.abc import Iterator

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
from headway.scheduler.snapshot import Known, left_of, node_view, running_run
from headway.scheduler.waiting import Waiting


def run_to_grow(made: Plan, seen: PoolSnapshot, waiting: Waiting, known: Known) -> Iterator[str]:
    """Runs that may stop now and go on larger: the first that still runs does, at most one a pass.

    None while somebody waits for room or is being stopped: whoever waits has it first, and two
    that grow at once would count on the same room.
    """
    waits = any(
        not (isinstance(entry, Stay) and entry.wait.resource is Resource.QUOTA)
        for entry in made.entries
    )
    if waits or any(record.preempted_for for record in seen.holders):
        return
    may_grow = [record for record in seen.holders if _may_grow(record)]
    if not may_grow:
        return
    running = [running_run(record, seen, waiting.gates, known) for record in seen.holders]
    pool = Pool([node_view(record, seen) for record in seen.nodes], running, waiting.settings)
    board = pool.board()
    runners = {one.ask.run_id: one for one in pool.runners(board)}
    names = {record.node.name for record in seen.nodes}
    for record in may_grow:
        standing = _standing(record, seen, known)
        if standing is None or record.demand is None or record.run_id not in runners:
            continue
        ask, runner = waiting.as_waiting(record, record.demand, names), runners[record.run_id]
        found = grows(ask, runner, standing, board, seen.at.timestamp())
        if any(_within_quota(each, runner, runners, waiting) for each in found):
            yield record.run_id


def _may_grow(record: RunRecord) -> bool:
    """Whether it is of several sizes, and goes on from a checkpoint when stopped."""
    said = record.prediction
    several = said is not None and len(said.sizes) > 1 and record.gang_id is None
    return several and record.state is RunState.RUNNING and record.goes_on


def _standing(record: RunRecord, seen: PoolSnapshot, known: Known) -> Standing | None:
    """How far it is; None where its log does not tell, or it wrote no checkpoint since it began."""
    said, job = known.said.get(record.run_id), kept_job(record.job)
    told = said is not None and said.attempt == record.attempt and said.remaining_s is not None
    left = left_of(record, said, known.usual, seen.at) if told else None
    age_s = _checkpoint_age_s(record, seen)
    begun, claimed = record.started_at, record.claimed_at
    if left is None or age_s is None or job is None or begun is None or claimed is None:
        return None
    ran_s = (seen.at - begun).total_seconds()
    if age_s > ran_s:
        return None
    restart_s = (begun - claimed).total_seconds() + job.stop_grace
    return Standing(left.median_s, age_s, restart_s)


def _checkpoint_age_s(record: RunRecord, seen: PoolSnapshot) -> float | None:
    """As the node that leads it has reported it."""
    node = next((each for each in seen.nodes if each.node.name == record.node), None)
    if node is None or node.reading is None:
        return None
    age_s = node.reading.checkpoint_age_s.get(record.run_id)
    return None if age_s is None else age_s + (seen.at - node.heartbeat_at).total_seconds()


def _within_quota(
    ask: WaitingRun, own: Runner, runners: dict[str, Runner], waiting: Waiting
) -> bool:
    """Whether its team may hold *ask* in the place of what *own* holds."""
    held = Held()
    for one in runners.values():
        if one.ask.team == ask.team and one is not own:
            held.add(one.ask)
    return held.exceeded(ask, waiting.settings.team(ask.team)) is None
