"""The queue of a pool from its rows: who waits in which order, and who cannot start at all."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from headway.ledger.pools import PoolSnapshot
from headway.model.lease import Demand, Resource, Wait
from headway.model.node import NodeState, PortUse
from headway.model.run import GRANTED
from headway.model.turn import Turn, VirtualClock
from headway.policy.admission import shut_out
from headway.policy.arrays import full_wait
from headway.policy.decide import Held
from headway.policy.fit import WaitingRun
from headway.policy.order import VirtualTime
from headway.policy.promise import PoolTotals
from headway.policy.queue import Queue
from headway.scheduler.limits import Gates
from headway.scheduler.snapshot import Known, left_of, node_view
from headway.scheduler.waiting import Waiting

_RESTS = Wait(
    Resource.TURN,
    "its last start failed: it is tried again within a minute; the worker's log has why",
)


def held_back(waiting: Waiting, seen: PoolSnapshot) -> dict[str, Wait]:
    """Runs that nothing could start now, whatever room there is.

    Those whose last start failed a moment ago, those that are barred, members of arrays of which as
    many run as may, and those that follow others which have not ended.
    """
    why_barred = barred(waiting.gates, seen)
    found = dict(_of_full_arrays(seen)) | dict(_of_others(seen))
    for run_id, entry in waiting.entries.items():
        if (wait := why_barred(entry.run)) is not None:
            found[run_id] = wait
    readings = (record.reading for record in seen.nodes)
    resting = {run_id for reading in readings if reading for run_id in reading.resting}
    return found | dict.fromkeys(resting & waiting.entries.keys(), _RESTS)


def barred(gates: Gates, seen: PoolSnapshot) -> Callable[[WaitingRun], Wait | None]:
    """Why no such run may start now: pool or queue are paused, or all nodes for it are closed."""
    nodes = [node_view(record, seen).node for record in seen.nodes]
    closed = any(node.state is not NodeState.READY for node in nodes)
    answers: dict[tuple[Demand, int, str], Wait | None] = {}

    def why(run: WaitingRun) -> Wait | None:
        if gates.pool_paused:
            return Wait(Resource.TURN, "its work pool is paused")
        if run.queue in gates.paused:
            return Wait(Resource.TURN, f"work queue {run.queue} is paused")
        if not closed:  # as mostly: it is asked of every run of the queue
            return None
        asks = (run.demand, run.nodes, run.node)
        if asks not in answers:
            answers[asks] = shut_out(*asks, nodes)
        return answers[asks]

    return why


def _of_full_arrays(seen: PoolSnapshot) -> Iterator[tuple[str, Wait]]:
    running = Counter(run.array_id for run in seen.holders if run.state in GRANTED)
    for run_id, (array_id, at_most) in seen.limited.items():
        if (wait := full_wait(running[array_id], at_most)) is not None:
            yield run_id, wait


def _of_others(seen: PoolSnapshot) -> Iterator[tuple[str, Wait]]:
    """Of those that never may start too, until somebody ends them."""
    for run_id, following in seen.following.items():
        said = following.says()
        if said is not None:
            yield run_id, said if isinstance(said, Wait) else Wait(Resource.TURN, said.message)


def queue_of(
    waiting: Waiting,
    seen: PoolSnapshot,
    known: Known,
    left_out: Collection[str] = (),
    also: Sequence[WaitingRun] = (),
) -> Queue[WaitingRun]:
    """The queue at the moment of *seen*, from the ledger's values alone.

    Who has a tag and a promise keeps them. The others get theirs here, in the order of their
    submission; `new_turns` says which these are.

    Args:
        waiting: The runs that wait.
        seen: The pool.
        known: What is known of those who run.
        left_out: Runs that nothing could start now: they have no part in it.
        also: Runs that might be submitted.
    """
    settings, now_s = waiting.settings, seen.at.timestamp()
    totals, clock = _totals(seen), seen.clock or VirtualClock(seen.at)
    virtual = VirtualTime(settings, int(totals.gpus), clock.at.timestamp(), dict(clock.attained))
    queue = Queue[WaitingRun](settings, totals, virtual)
    held: dict[str, Held] = {}
    for run, end_s in _running(waiting, seen, known):
        queue.add_running(run, end_s)
        held.setdefault(run.team, Held()).add(run)
    runs = [
        entry.as_long_as_its_like(known.claims)
        for run_id, entry in waiting.entries.items()
        if run_id not in left_out
    ]
    for run in runs:
        _take_turn(run, waiting.turns.get(run.run_id))
    tagged = sorted((run for run in runs if run.tag is not None), key=lambda run: run.run_id)
    others = sorted(
        (run for run in runs if run.tag is None), key=lambda run: (run.submitted_s, run.run_id)
    )
    for run in (*tagged, *others, *also):
        may_start = run.promised_s is None and (
            held.get(run.team, Held()).exceeded(run, settings.team(run.team)) is None
        )
        queue.add(run, now_s, may_start=may_start)
    virtual.advance(now_s)
    return queue


def _take_turn(run: WaitingRun, turn: Turn | None) -> None:
    run.tag = None if turn is None else turn.tag
    run.promised_s = turn.promised_at.timestamp() if turn and turn.promised_at else None


def new_turns(queue: Queue[WaitingRun], kept: Mapping[str, Turn]) -> dict[str, Turn]:
    """What *queue* gave runs that is not *kept* yet."""
    return {
        run.run_id: Turn(run.tag or 0.0, run.promised_at)
        for run in queue.waiting.values()
        if (turn := kept.get(run.run_id)) is None
        or (turn.promised_at is None and run.promised_s is not None)
    }


def _running(
    waiting: Waiting, seen: PoolSnapshot, known: Known
) -> Iterator[tuple[WaitingRun, float]]:
    """Each run that holds leases, as it waited, and when it is expected to end."""
    for record in seen.holders:
        if record.demand is None or record.gang_id is not None:
            continue
        run = waiting.as_waiting(record, record.demand)
        lasted_s = (seen.at - (record.started_at or seen.at)).total_seconds()
        if record.started_at and lasted_s > run.high_s:
            run.lengthened(lasted_s / run.median_s)  # its estimate buys it no place any more
        left = left_of(record, known.said.get(record.run_id), known.usual, seen.at)
        yield run, seen.at.timestamp() + (run.mean_s if left is None else left.median_s)


def _totals(seen: PoolSnapshot) -> PoolTotals:
    nodes = [record.node.capacity for record in seen.nodes]
    published = any(record.node.ports.use is PortUse.PUBLISHED for record in seen.nodes)
    return PoolTotals(
        max(sum(len(node.gpus) for node in nodes), 1),
        sum(node.cpus for node in nodes) or 1.0,
        sum(node.host_memory_bytes for node in nodes) or 1.0,
        math.inf if published else max(len(nodes), 1),
    )
