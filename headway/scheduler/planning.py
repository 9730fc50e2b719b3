"""The plan of a pool at one moment, from what waits there and what is known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from weakref import WeakKeyDictionary

from headway.estimate.starts import StartCalibration
from headway.ledger.pools import PoolSnapshot
from headway.model.lease import Wait
from headway.model.run import Span
from headway.policy.fit import WaitingRun, moment
from headway.policy.plan import Plan, Stay, plan
from headway.policy.queue import Queue
from headway.scheduler.announced import is_behind
from headway.scheduler.front import barred, held_back, queue_of
from headway.scheduler.limits import read_gates
from headway.scheduler.snapshot import Known, ReadSoFar, node_view, read_known, running_run
from headway.scheduler.waiting import Waiting
from headway.site import Site


def make_plan(queue: Queue[WaitingRun], waiting: Waiting, seen: PoolSnapshot, known: Known) -> Plan:
    """The plan for the front of *queue*."""
    front, gates = queue.front(seen.at.timestamp()), waiting.gates
    asked = [
        entry.with_length(run, known.usual)
        if (entry := waiting.entries.get(run.run_id)) is not None and entry.run is run
        else run
        for run in front
    ]
    made = plan(
        [node_view(record, seen) for record in seen.nodes],
        asked,
        [running_run(record, seen, gates, known) for record in seen.holders],
        now=seen.at,
        settings=waiting.settings,
    )
    # Who has got a place since it was played counts, too.
    is_played = all(record.run_id in known.played.left for record in seen.holders)
    at = known.played.at if is_played else seen.at
    preempting = {each.for_run_id for each in made.preempts}
    entries = (
        as_played(entry, known.played.wait(entry.run_id, at), at, known.starts)
        if isinstance(entry, Stay) and entry.run_id not in preempting and entry.expected_at
        else entry  # what is not known of those that run no play knows
        for entry in made.entries
    )
    return replace(made, entries=tuple(entries))


def as_played(stay: Stay, planned: Span | None, at: datetime, learnt: StartCalibration) -> Stay:
    """*stay* with its start and interval as the queue was played, by what came of such plays.

    Args:
        stay: As planned.
        planned: How long it waits from *at* on; None where that was not played.
        at: When that was planned.
        learnt: What came of such plays.
    """
    if planned is None:
        return stay
    if at == stay.said_at:
        planned = not_before(stay, planned)
    ends = (moment(at.timestamp() + each) for each in learnt.wait(planned))
    earliest_at, expected_at, latest_at = (max(each, stay.said_at) for each in ends)
    return replace(
        stay,
        earliest_at=earliest_at,
        expected_at=expected_at,
        latest_at=latest_at,
        planned=planned,
        planned_at=at,
    )


def not_before(stay: Stay, planned: Span) -> Span:
    """*planned*, of the moment of *stay*, not before its start: who has its place ends then."""
    if stay.expected_at is None:
        return planned
    least_s = (stay.expected_at - stay.said_at).total_seconds()
    return Span(planned.low_s, *(max(each, least_s) for each in planned[1:]))


def with_behind(made: Plan, queue: Queue[WaitingRun], seen: PoolSnapshot, known: Known) -> Plan:
    """*made* with the runs beyond its front, where the queue was played with them."""
    return replace(made, behind=tuple(_behind(made, queue, seen, known)))


def _behind(
    made: Plan, queue: Queue[WaitingRun], seen: PoolSnapshot, known: Known
) -> Iterator[Stay]:
    front = {entry.run_id for entry in made.entries}
    others = (run_id for run_id in queue.in_order() if run_id not in front)
    for position, run_id in enumerate(others, start=len(front) + 1):
        if (wait := known.played.waits.get(run_id)) is not None:
            promised_at = queue.waiting[run_id].promised_at
            stay = Stay(run_id, position, is_behind(len(front)), seen.at, promised_at=promised_at)
            yield as_played(stay, wait, known.played.at, known.starts)


@dataclass(frozen=True, slots=True)
class PoolNow:
    """A pool as it was read at one moment, for several questions."""

    waiting: Waiting
    seen: PoolSnapshot
    known: Known
    left_out: Mapping[str, Wait]
    """Runs that nothing could start now, with the reason."""

    def plan(self, also: Sequence[WaitingRun] = ()) -> Plan:
        """The plan of that moment with the runs of *also*; grants and writes nothing.

        One of them that waits already takes the place of what it asked before.
        """
        asked = {run.run_id for run in also}
        # What was played was what they asked before.
        waits = {run: wait for run, wait in self.known.played.waits.items() if run not in asked}
        known = replace(self.known, played=replace(self.known.played, waits=waits))
        return make_plan(self.queue(also), self.waiting, self.seen, known)

    def whole_plan(self) -> Plan:
        """The plan of that moment with the runs behind the front."""
        queue = self.queue()
        made = make_plan(queue, self.waiting, self.seen, self.known)
        return with_behind(made, queue, self.seen, self.known)

    def wait_near(self, run: WaitingRun) -> Span | None:
        """How long the last run waits that would be before *run*, which joins now, and like it.

        None where none was played.
        """
        order = self.queue([run]).in_order()
        before = order[: order.index(run.run_id)] if run.run_id in order else []
        waits, places = self.known.played.waits, _places(run)
        like = (
            run_id
            for run_id in reversed(before)
            if run_id in waits and _places(self.waiting.entries[run_id].run) == places
        )
        near = next(like, None)
        return None if near is None else self.known.played.wait(near, self.seen.at)

    def queue(self, also: Sequence[WaitingRun] = ()) -> Queue[WaitingRun]:
        """The queue of that moment; *also* as for `plan`."""
        left_out = self.left_out.keys() | {run.run_id for run in also}
        open_to = [run for run in also if self.barred(run) is None]
        return queue_of(self.waiting, self.seen, self.known, left_out, open_to)

    def barred(self, run: WaitingRun) -> Wait | None:
        """Why *run* could not start now whatever room there is; None where it could."""
        return barred(self.waiting.gates, self.seen)(run)


def _places(run: WaitingRun) -> tuple[object, ...]:
    """What decides for which places it waits."""
    return run.node, run.nodes, run.gpus, run.gpu_type, run.ports


_KEPT: WeakKeyDictionary[Site, dict[str, tuple[Waiting, ReadSoFar]]] = WeakKeyDictionary()
"""What was read of each site's queues last: of thousands of runs only what changed is read anew."""
_READING = Lock()


def read_pool(site: Site, pool: str = "") -> PoolNow:
    """The pool now; *pool* empty for this node's."""
    pool = pool or site.settings.pool
    gates, settings = read_gates(site.ledger, pool), site.policy_settings
    with _READING:
        new = Waiting(), ReadSoFar(site.ledger)
        kept, so_far = _KEPT.setdefault(site, {}).setdefault(pool, new)
        seen = site.ledger.pools.snapshot(pool, kept.versions, kept.since)
        nodes = {record.node.name for record in seen.nodes}
        kept.go_by(settings, gates, nodes)
        kept.follow(seen)
        for record in seen.changed:
            kept.put(record, seen.waiting[record.run_id], nodes)
        for run_id, turn in seen.turns.items():
            entry = kept.entries.get(run_id)
            if entry is not None and entry.record.promised_at != turn.promised_at:
                promised = replace(entry.record, promised_at=turn.promised_at)
                kept.put(promised, kept.versions[run_id], nodes)
        kept.since = seen.until
        waiting = kept.copy()
        known = read_known(site.ledger, seen, settings, so_far)
    return PoolNow(waiting, seen, known, held_back(waiting, seen))
