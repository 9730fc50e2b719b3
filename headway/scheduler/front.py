"""Which of the runs that wait a plan can concern."""

from collections.abc import Collection
from dataclasses import replace
from heapq import nsmallest

from headway.ledger.pools import PoolSnapshot
from headway.model.lease import Demand, Resource, Wait
from headway.model.node import NodeState
from headway.policy.admission import shut_out
from headway.policy.fit import Ask, WaitingRun
from headway.policy.order import considered, first_come_wait_s, waited_long
from headway.policy.settings import PolicySettings
from headway.scheduler.snapshot import node_view
from headway.scheduler.waiting import Waiting


def held_back(waiting: Waiting, seen: PoolSnapshot) -> dict[str, Wait]:
    """Runs of paused queues, and those that only nodes could hold that are closed now."""
    nodes = [node_view(record, seen).node for record in seen.nodes]
    closed = any(node.state is not NodeState.READY for node in nodes)
    paused = waiting.gates.paused
    answers: dict[tuple[Demand, int, str], Wait | None] = {}
    found = {}
    for run_id, entry in waiting.entries.items() if paused or closed else ():
        run = entry.run
        if run.queue in paused:
            found[run_id] = Wait(Resource.TURN, f"work queue {run.queue} is paused")
            continue
        asks = (run.demand, run.nodes, run.node)
        if closed and asks not in answers:
            answers[asks] = shut_out(*asks, nodes)
        if (wait := answers.get(asks)) is not None:
            found[run_id] = wait
    return found


def due(
    waiting: Waiting, seen: PoolSnapshot, left_out: Collection[str], settings: PolicySettings
) -> dict[str, WaitingRun]:
    """Runs that go to the front of their priority: overtaken most, or waiting long."""
    overtaken = {
        run_id: times
        for run_id, times in seen.overtaken.items()
        if times >= settings.overtake_limit and run_id in waiting.entries
    }
    long = {ask.run_id for ask in _waited_long(waiting, seen, left_out, settings)}
    return {
        run_id: replace(
            waiting.entries[run_id].run,
            overtaken=overtaken.get(run_id, 0),
            long_waited=run_id in long,
        )
        for run_id in overtaken.keys() | long
        if run_id not in left_out
    }


def _waited_long(
    waiting: Waiting, seen: PoolSnapshot, left_out: Collection[str], settings: PolicySettings
) -> list[Ask]:
    now_s = seen.at.timestamp()
    held = (
        (
            len(lease.gpus),
            lease.predicted_end_at.timestamp()
            if lease.predicted_end_at
            else lease.granted_at.timestamp() + settings.unknown_runtime_s,
        )
        for lease in seen.leases
    )
    gpus = sum(len(record.node.capacity.gpus) for record in seen.nodes)
    out_s = sum(round(waiting.entries[run_id].run.work_s) for run_id in left_out)
    first_come_s = first_come_wait_s(waiting.sorted.work_s - out_s, held, gpus, now_s)
    runs = (entry.run for run_id, entry in waiting.entries.items() if run_id not in left_out)
    oldest = nsmallest(considered(settings), runs, key=lambda run: (run.submitted_s, run.run_id))
    levels: dict[int, list[Ask]] = {}
    for run in oldest:
        levels.setdefault(run.priority, []).append(run)
    return [
        ask
        for level in levels.values()
        for ask in waited_long(level, first_come_s, now_s, settings)
    ]
