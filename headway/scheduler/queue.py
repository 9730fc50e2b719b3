"""The queue of this node's pool: one pass plans, grants, and says why the others wait.

Every worker of a pool plans from the same rows; each grants only on its own node. One of them,
the first by name that is heard of, speaks for the pool: it takes in what is new, writes down why
runs wait, announces who is first in the queue, and calls the nodes on which its plan starts or
stops something. The others plan for those first runs alone: when they are called, when something
of theirs ends, and now and then.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from headway.errors import LeaseLost, RunUnknown
from headway.estimate.starts import played_document
from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import RunRecord
from headway.model.lease import Fence, Resource, Wait
from headway.model.prefect_view import News, RunNews
from headway.model.run import Exit, Measurement
from headway.model.turn import Front, VirtualClock
from headway.node.flowrun import live_flow
from headway.policy.claims import claim_room
from headway.policy.fit import WaitingRun
from headway.policy.plan import Plan
from headway.policy.queue import Queue
from headway.scheduler.announced import Announced
from headway.scheduler.cpu_fallback import Fallbacks
from headway.scheduler.front import announced_front, held_back, new_turns, queue_of
from headway.scheduler.grants import concerned, grant_starts, runs_to_stop
from headway.scheduler.growth import run_to_grow
from headway.scheduler.intake import Intake, Offer
from headway.scheduler.limits import Gates, read_gates
from headway.scheduler.planning import make_plan, plan_front, read_pool
from headway.scheduler.playing import play
from headway.scheduler.snapshot import LOST_AFTER_S, EndedRuns, Known, read_known
from headway.scheduler.starts import SaidStarts
from headway.scheduler.waiting import Waiting
from headway.scheduler.why import Why, why
from headway.site import Site

_KEEP_CLOCK = timedelta(minutes=1)
"""The virtual clock is kept so often even where nobody joins the queue."""
_SPEAKS_WITHIN_S = 15.0
"""One that was not heard of for so long may be dead: until it is lost, all do as it does."""
_RESTS = Wait(
    Resource.TURN,
    "its last start failed: it is tried again within a minute; the worker's log has why",
)
_FRONTS = 2
"""So many windows of runs are announced: until the next plan some of them start."""
_ANNOUNCE_AGAIN = timedelta(seconds=5)
_HOLDS_S = 60.0
"""An announcement is gone by for so long, while some of its runs wait: thousands of new runs keep
the one that announces busy for a while, and would keep all others busy as long."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass decided."""

    start: tuple[str, ...] = ()
    """Runs whose flow process is to be started now, in order."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Runs of which there is news why they wait: reason, place and expected start."""
    logged: frozenset[str] = frozenset()
    """Those of them whose news is worth a line of their logs."""
    preempt: tuple[str, ...] = ()
    """Runs of this node whose containers are to be stopped for others, or to go on larger."""
    held_up: bool = False
    """More would start here, but for claims that no flow process has taken up yet."""


class Explained(NamedTuple):
    """A run, and why it waits."""

    record: RunRecord
    why: Why


class PoolQueue:
    """Plans for the pool of one node, and grants on that node."""

    def __init__(self, site: Site) -> None:
        """The queue of the pool of *site*'s node, of which nothing is known yet."""
        self._site = site
        self._pool = site.settings.pool
        self._waiting = Waiting()
        self._announced = Announced()
        self._starts = SaidStarts(site.ledger)
        self._held_back: dict[str, Wait] = {}
        self._explained: dict[str, int] = {}
        self._front: Front | None = None
        self._ended = EndedRuns(site.ledger)
        self._fallbacks = Fallbacks()
        self.others: frozenset[str] = frozenset()
        """In the last pass over all of the queue, the other nodes of the pool."""
        self.called: frozenset[str] = frozenset()
        """Of the last offers those that the janitor is to look at: see `Intake`."""
        self.speaks = False
        """In the last pass this node was the one that speaks for the pool."""
        self.follows = False
        """In the last pass another one did, that was heard of just now and can call this node."""

    def still_follows(self) -> bool:
        """Whether another one is followed still; what to ask between passes, which are few."""
        if self.follows:
            self.follows = self._follows(self._site.ledger.nodes.silent_s(self._pool))
        return self.follows

    def known(self) -> frozenset[str]:
        """Runs that wait in the ledger: they need no new offer.

        Not only those that this worker has looked at: one that has followed another one until now
        would read all of a long queue from Prefect before its first pass.
        """
        return self._site.ledger.runs.waiting_ids(self._pool)

    def orphans(self) -> list[str]:
        """Granted runs of this node without a flow process; Prefect may offer them again."""
        node, state_dir = self._site.settings.node, self._site.settings.state_dir
        granted = [one for one in self._site.ledger.leases.live(node) if one.gang_rank == 0]
        return [lease.run_id for lease in granted if live_flow(state_dir, lease.run_id) is None]

    def take_in(self, offers: Iterable[Offer]) -> list[str]:
        """Put new runs into the queue; gives those to be started at once: see `Intake`."""
        intake = Intake(self._site, self._pool, self._waiting.gates)
        at_once = intake.take_in(offers)
        self.called = frozenset(intake.called)
        return at_once

    def give_back(self, run_id: str) -> None:
        """The run is not started after all; nothing of one that a flow process has taken up."""
        lease = self._site.ledger.leases.of_run(run_id)
        if lease is None or lease.start_by is None or lease.node != self._site.settings.node:
            return
        with suppress(LeaseLost):  # the janitor was faster
            self._site.ledger.leases.give_back(lease.fence)

    def may_claim(self, slots: int | None = None) -> bool:
        """Whether this node may claim more: flow processes have taken up what it has claimed.

        Args:
            slots: See `run_pass`.
        """
        ledger, node = self._site.ledger, self._site.settings.node
        record, untaken = ledger.nodes.get(node), len(ledger.leases.unstarted(node))
        return record is not None and claim_room(record.node.capacity.cpus, untaken, slots) > 0

    def _follow(self, slots: int | None, resting: Collection[str]) -> Pass | None:
        """A pass over the runs that were announced as the first: plan, grant what starts here.

        However long the queue is, it costs the same. The first runs are as good as all of them:
        what comes behind would start after those. None where nobody is followed, or announced
        anything lately.
        """
        site, pool = self._site, self._pool
        front = site.ledger.turns.front(pool) if self.follows else None
        if front is None:
            return None
        seen = site.ledger.pools.snapshot(pool, {}, front.run_ids)
        age_s = (seen.at - front.at).total_seconds()
        holds_s = _HOLDS_S if seen.waiting else _SPEAKS_WITHIN_S
        if not self._another_speaks(_silent_s(seen)) or age_s >= holds_s:
            return None
        gates, waiting = read_gates(site.ledger, pool), Waiting()
        nodes = {record.node.name for record in seen.nodes}
        settings = site.policy_settings
        waiting.go_by(settings, gates, nodes)
        for record in seen.changed:
            if record.demand_override is None:  # else another demand is being found for it
                waiting.put(record, nodes)
        known = read_known(site.ledger, seen, settings, self._ended.newest())
        first = [run for run in announced_front(front, waiting, seen) if run.run_id not in resting]
        made = plan_front(first, waiting, seen, known)
        granted = grant_starts(site, made, seen, gates, slots)
        stop = self._to_stop(made, seen, waiting, known)
        return Pass(granted.run_ids, preempt=stop, held_up=granted.held_up)

    def run_pass(
        self,
        gates: Gates | None = None,
        slots: int | None = None,
        *,
        alone: bool = True,
        resting: Collection[str] = (),
    ) -> Pass:
        """One pass: plan, grant what starts on this node, say why the others wait.

        Args:
            gates: What an operator has set; None to read it.
            slots: How many runs this worker may submit now; None where it has no limit.
            alone: Look at all of the queue, also where another worker announces who is first.
            resting: Runs whose last start here has failed, and that are not to be started yet.
        """
        if not alone and (decided := self._follow(slots, resting)) is not None:
            return decided
        site, waiting = self._site, self._waiting
        settings, gates = site.policy_settings, gates or read_gates(site.ledger, self._pool)
        seen = site.ledger.pools.snapshot(self._pool, waiting.attempts())
        nodes = {record.node.name for record in seen.nodes}
        waiting.go_by(settings, gates, nodes)
        refused = self._keep_up(seen, nodes)
        self._hold_back(seen, resting)
        known = read_known(site.ledger, seen, settings, self._ended.newest())
        queue = queue_of(waiting, seen, known, self._held_back)
        made = make_plan(queue, waiting, seen, known)
        if self._fall_back(made, seen, nodes):
            self._hold_back(seen, resting)
            queue = queue_of(waiting, seen, known, self._held_back)
            made = make_plan(queue, waiting, seen, known)
        speaks = self.speaks = self._speaks_for_the_pool(seen)
        self.follows = self._follows(_silent_s(seen))
        self.others = frozenset(nodes - {site.settings.node})
        if speaks:
            self._end_in_vain(seen)
            self._keep_turns(queue, seen)
            made = self._starts.keep(made, seen, waiting, known.starts)
            self._announce(queue, seen)
            site.ledger.calls.send(concerned(made, seen) - {site.settings.node})
        granted = grant_starts(site, made, seen, gates, slots)
        waits, logged = self._tell(made, seen) if speaks else ({}, None)
        stop = self._to_stop(made, seen, waiting, known)
        refused = [run_id for run_id in refused if run_id not in resting]
        start = (*refused, *granted.run_ids)
        return Pass(start, waits, logged or frozenset(), stop, granted.held_up)

    def _to_stop(
        self, made: Plan, seen: PoolSnapshot, waiting: Waiting, known: Known
    ) -> tuple[str, ...]:
        stop = runs_to_stop(self._site, made, seen)
        return (*stop, *run_to_grow(self._site, made, seen, waiting, known))

    def _announce(self, queue: Queue[WaitingRun], seen: PoolSnapshot) -> None:
        """Let the workers that follow know who is first, where that is news or long ago."""
        first = tuple(run.run_id for run in queue.front(seen.at.timestamp(), _FRONTS))
        before = self._front
        if before is None or first != before.run_ids or seen.at - before.at > _ANNOUNCE_AGAIN:
            self._front = Front(seen.at, first)
            self._site.ledger.turns.announce(self._pool, self._front)

    def pass_on(self, told: RunNews) -> bool:
        """Call the other node that a run concerns of which Prefect told something; whether any.

        That is the one that has it where its user may have asked something, and the one that it
        was handed to, by the work queue with the node's name.
        """
        if not self.speaks or told.news is News.COMPLETED:
            return False
        node = self._node_of(told.run_id) if told.news is News.ASKED else told.queue
        if node not in self.others:
            return False
        self._site.ledger.calls.send([node], told.run_id)
        return True

    def _node_of(self, run_id: str) -> str:
        """The node that has a run, or had it last; empty where none has, or nobody knows it."""
        try:
            return self._site.ledger.runs.get(run_id).node or ""
        except RunUnknown:
            return ""

    def play(self) -> Explained | None:
        """Play the queue forward and keep what comes of it, where this node speaks for the pool.

        For a thread of its own: it takes seconds where the queue is long.

        Returns:
            Why one of the runs waits, each in its turn; None where nobody waits.
        """
        if not self.speaks:  # reading a long queue takes seconds, too
            return None
        now = read_pool(self._site, self._pool)
        entries = now.waiting.entries
        if not entries:
            return None
        self._site.ledger.starts.keep_played(self._pool, played_document(play(now)))
        told = {run_id: self._explained.get(run_id, 0) for run_id in entries}
        turn = min(told, key=lambda run_id: (told[run_id], entries[run_id].run.submitted_s))
        self._explained = {**told, turn: max(told.values()) + 1}
        found = why(self._site, entries[turn].record)
        return None if found is None else Explained(entries[turn].record, found)

    def _keep_up(self, seen: PoolSnapshot, nodes: set[str]) -> list[str]:
        """Remember who waits now; gives runs whose next attempt no node could hold."""
        waiting = self._waiting
        gone = waiting.entries.keys() - seen.waiting.keys()
        for run_id in gone:
            waiting.remove(run_id)
            self._forget(run_id)
        self._starts.over(gone)
        intake = Intake(self._site, self._pool, waiting.gates)
        refused = []
        for record in seen.changed:
            self._forget(record.run_id)
            job = intake.job_of(record)
            if isinstance(job, Exit):
                self._end(record, job)
                continue
            anew = record.demand is None or record.demand_override is not None
            told = intake.predicted(record, job) if anew else record
            if told is None:
                refused.append(record.run_id)
            else:
                waiting.put(told, nodes)
        return refused

    def _end_in_vain(self, seen: PoolSnapshot) -> None:
        """End runs that were to follow others which ended otherwise; none waits for ever."""
        for run_id, following in seen.following.items():
            exit_ = following.says()
            if isinstance(exit_, Exit):
                record = self._site.ledger.runs.get(run_id)
                if record.array_id is not None:
                    self._site.ledger.arrays.cancel(record.array_id, f"since {exit_.message}")
                self._end(record, exit_)

    def _end(self, record: RunRecord, exit_: Exit) -> None:
        """End a run that waits, unless it was granted or ended since it was read."""
        with suppress(LeaseLost):
            fence = Fence(record.run_id, record.attempt)
            self._site.ledger.runs.finish(fence, exit_, Measurement())

    def _forget(self, run_id: str) -> None:
        self._announced.forget(run_id)
        self._fallbacks.forget(run_id)

    def _hold_back(self, seen: PoolSnapshot, resting: Collection[str]) -> None:
        rests = {run_id: _RESTS for run_id in resting if run_id in self._waiting.entries}
        before, self._held_back = self._held_back, held_back(self._waiting, seen) | rests
        for run_id in before.keys() - self._held_back.keys():
            self._announced.forget(run_id)

    def _fall_back(self, made: Plan, seen: PoolSnapshot, nodes: set[str]) -> bool:
        """Let runs do without GPUs where they end sooner so; whether any does.

        Every worker decides alike from the same rows; one of them writes it down.
        """
        due = list(self._fallbacks.due(self._site, made, self._waiting, seen))
        for record in due:
            if self._speaks_for_the_pool(seen) and record.prediction and record.demand:
                with suppress(LeaseLost):  # another node has claimed it meanwhile
                    self._site.ledger.runs.predict(
                        record.unleased, record.prediction, record.demand
                    )
            self._forget(record.run_id)
            self._waiting.put(record, nodes)
        return bool(due)

    def _keep_turns(self, queue: Queue[WaitingRun], seen: PoolSnapshot) -> None:
        """Write down the tags and promises that are new, and now and then the virtual clock.

        Every worker has computed the same ones; from now on all of them read these.
        """
        turns = new_turns(queue, seen)
        if turns or seen.clock is None or seen.at - seen.clock.at > _KEEP_CLOCK:
            clock = VirtualClock(seen.at, queue.virtual.attained)
            self._site.ledger.turns.keep(self._pool, clock, turns)

    def _speaks_for_the_pool(self, seen: PoolSnapshot) -> bool:
        return _speaker(_silent_s(seen)) == self._site.settings.node

    def _another_speaks(self, silent_s: Mapping[str, float]) -> bool:
        """Whether another node speaks for the pool, and was heard of a moment ago."""
        speaker = _speaker(silent_s)
        if speaker in {"", self._site.settings.node}:
            return False
        return silent_s[speaker] < _SPEAKS_WITHIN_S

    def _follows(self, silent_s: Mapping[str, float]) -> bool:
        """Whether another node does so: it announces, as one does that reaches Prefect."""
        return (
            self._another_speaks(silent_s)
            and self._site.ledger.turns.announced_s(self._pool) < _HOLDS_S
        )

    def _tell(self, made: Plan, seen: PoolSnapshot) -> tuple[dict[str, str], frozenset[str]]:
        """Write down what runs wait for, where that is news."""
        reasons, sentences, logged = self._announced.news(
            made, seen, self._waiting, self._held_back
        )
        self._site.ledger.runs.set_reasons(reasons)
        return sentences, logged


def _silent_s(seen: PoolSnapshot) -> dict[str, float]:
    """Seconds since each node was heard of."""
    return {each.node.name: (seen.at - each.heartbeat_at).total_seconds() for each in seen.nodes}


def _speaker(silent_s: Mapping[str, float]) -> str:
    """The first by name of the nodes that are not lost; empty where all are."""
    return min((name for name, for_s in silent_s.items() if for_s <= LOST_AFTER_S), default="")
