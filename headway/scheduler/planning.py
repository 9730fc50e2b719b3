"""The plan of a pool at one moment, from what waits there and what is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.estimate.starts import StartCalibration
from headway.ledger.pools import PoolSnapshot
from headway.model.lease import Wait
from headway.model.run import Span
from headway.policy.fit import WaitingRun, moment
from headway.policy.plan import Plan, Start, Stay, plan
from headway.policy.queue import Queue
from headway.scheduler.front import held_back, queue_of
from headway.scheduler.limits import read_gates
from headway.scheduler.snapshot import Known, node_view, read_known, running_run
from headway.scheduler.waiting import Waiting
from headway.site import Site


def make_plan(queue: Queue[WaitingRun], waiting: Waiting, seen: PoolSnapshot, known: Known) -> Plan:
    """The plan for the front of *queue*."""
    gates = waiting.gates
    if gates.pool_paused:
        return Plan()
    front = [
        entry.with_length(run, known.usual)
        if (entry := waiting.entries.get(run.run_id)) is not None and entry.run is run
        else run
        for run in queue.front(seen.at.timestamp())
    ]
    made = plan(
        [node_view(record, seen) for record in seen.nodes],
        front,
        [running_run(r, seen, gates, known.said.get(r.run_id), known.usual) for r in seen.holders],
        now=seen.at,
        settings=waiting.settings,
    )
    entries = zip(made.entries, front, strict=True)
    return replace(made, entries=tuple(_as_learnt(*each, known.starts) for each in entries))


def _as_learnt(entry: Start | Stay, run: WaitingRun, learnt: StartCalibration) -> Start | Stay:
    """*entry* with its start and interval by what came of such plans."""
    if not isinstance(entry, Stay) or entry.planned_s is None:
        return entry
    at_s = entry.said_at.timestamp()
    ends = (entry.earliest_at, entry.expected_at, entry.latest_at)
    planned = Span(*(end.timestamp() - at_s for end in ends if end is not None))
    wait = learnt.wait(planned, gpus=run.gpus * run.nodes, ahead=entry.position - 1)
    earliest_at, expected_at, latest_at = (moment(at_s + wait_s) for wait_s in wait)
    return replace(entry, earliest_at=earliest_at, expected_at=expected_at, latest_at=latest_at)


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
        left_out = self.left_out.keys() | {run.run_id for run in also}
        queue = queue_of(self.waiting, self.seen, self.known, left_out, also)
        return make_plan(queue, self.waiting, self.seen, self.known)


def read_pool(site: Site, pool: str = "") -> PoolNow:
    """The pool now; *pool* empty for this node's."""
    pool = pool or site.settings.pool
    gates, waiting = read_gates(site.ledger, pool), Waiting()
    seen = site.ledger.pools.snapshot(pool, waiting.attempts())
    nodes = {record.node.name for record in seen.nodes}
    waiting.go_by(site.policy_settings, gates, nodes)
    for record in seen.changed:
        waiting.put(record, nodes)
    return PoolNow(waiting, seen, read_known(site.ledger, seen), held_back(waiting, seen))


def preview(site: Site, pool: str = "") -> Callable[[Sequence[WaitingRun]], Plan]:
    """The plan of this moment for any runs in addition; *pool* as for `read_pool`."""
    return read_pool(site, pool).plan
