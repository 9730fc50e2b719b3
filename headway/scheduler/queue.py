"""The queue of a pool: its leader plans, grants, and says why the others wait.

One scheduler leads the pool, in a term that each of its writes names; the others stand by.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from headway.clock import NowAndThen
from headway.errors import HeadwayError, LeaseLost
from headway.ledger.leaders import LEADS_S
from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import RunRecord
from headway.model.lease import Fence, Wait
from headway.model.run import Exit, Measurement
from headway.model.term import Leader, Term
from headway.model.turn import VirtualClock
from headway.policy.fit import WaitingRun
from headway.policy.plan import Plan
from headway.policy.queue import Queue
from headway.scheduler.announced import Announced
from headway.scheduler.cpu_fallback import Fallbacks
from headway.scheduler.front import held_back, new_turns, queue_of
from headway.scheduler.grants import give_back_untaken, grant_starts, mark_stops, room_of
from headway.scheduler.growth import run_to_grow
from headway.scheduler.intake import Intake, Offer, Taken
from headway.scheduler.limits import Gates, read_gates
from headway.scheduler.planning import make_plan, with_behind
from headway.scheduler.snapshot import ReadSoFar, read_known
from headway.scheduler.starts import SaidStarts
from headway.scheduler.waiting import Waiting
from headway.site import Site

_KEEP_CLOCK = timedelta(minutes=1)
"""The virtual clock is kept so often even where nobody joins the queue."""
_BEHIND_EVERY_S = 10.0
"""So often it is told of the runs behind those that are planned for when they start."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass decided."""

    granted: tuple[str, ...] = ()
    """Runs that got their leases, on any node, in order."""
    refused: tuple[str, ...] = ()
    """Runs that no node could hold any more, which have ended; of an engine, those that have begun:
    their pages say no more why they wait."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Runs of which there is news why they wait: reason, place and expected start."""
    logged: frozenset[str] = frozenset()
    """Those of them whose news is worth a line of their logs."""
    planned: frozenset[str] = frozenset()
    """The first runs of the queue, for which was planned."""
    held_up: bool = False
    """More would start, but for claims that no flow process has taken up yet."""


class PoolQueue:
    """Schedules one pool, while it leads it."""

    members_ahead = 1
    """So many members of an array wait in the queue at once; the next is made as one starts."""

    def __init__(self, site: Site) -> None:
        """The queue of the pool of *site*'s node, of which nothing is known yet."""
        self._site = site
        self._pool = site.settings.pool
        self._waiting = Waiting()
        self._announced = Announced()
        self._starts = SaidStarts(site.ledger)
        self._held_back: dict[str, Wait] = {}
        self._held_up: frozenset[str] = frozenset()
        self._so_far = ReadSoFar(site.ledger)
        self._behind_due = NowAndThen(site.clock, _BEHIND_EVERY_S)
        self._fallbacks = Fallbacks()
        self._term: Term | None = None
        self.called: set[str] = set()
        """Runs that the janitor is to look at: see `Intake`; who does takes them out."""

    @property
    def leads(self) -> bool:
        """Whether this one leads the pool, for all that it knows."""
        return self._term is not None

    @property
    def is_empty(self) -> bool:
        """Whether no run waited at the last pass."""
        return not self._waiting.entries

    def contend(self, *, reaches_prefect: bool) -> Leader:
        """Begin to lead the pool or go on, where nobody else does; who leads it now.

        Who does not reach Prefect leaves it to others for a while, and leads where none does.
        """
        site, after_s = self._site, 0.0 if reaches_prefect else LEADS_S
        leader = site.ledger.leaders.contend(
            self._pool, site.settings.node, site.worker_token, ttl_s=LEADS_S, after_s=after_s
        )
        self._term = leader.term if leader.holder == site.worker_token else None
        return leader

    def known(self) -> frozenset[str]:
        """Runs that wait in the ledger: they need no new offer.

        Not only those that this scheduler has looked at: one that begins to lead would read all of
        a long queue from Prefect before its first pass.
        """
        return self._site.ledger.runs.waiting_ids(self._pool)

    def take_in(self, offers: Iterable[Offer]) -> Taken:
        """Put new runs into the queue: see `Intake`."""
        intake = Intake(self._site, self._pool, self._waiting.gates)
        taken = intake.take_in(offers)
        self.called |= intake.called
        return taken

    def may_claim(self) -> bool:
        """Whether flow processes have taken up what held the last pass up."""
        ledger = self._site.ledger
        untaken = ledger.leases.untaken_claims(self._held_up)
        records = ledger.nodes.all(self._held_up)
        return any(room_of(record, untaken.get(record.node.name, 0)) for record in records)

    def run_pass(self, gates: Gates | None = None) -> Pass:
        """One pass: plan, grant what starts, say why the others wait. Nothing where it leads not.

        Args:
            gates: What an operator has set; None to read it.

        Raises:
            TermOver: Another one leads the pool by now.
        """
        if (term := self._term) is None:
            return Pass()
        site, waiting = self._site, self._waiting
        settings, gates = site.policy_settings, gates or read_gates(site.ledger, self._pool)
        seen = site.ledger.pools.snapshot(self._pool, waiting.versions, waiting.since)
        nodes = {record.node.name for record in seen.nodes}
        waiting.go_by(settings, gates, nodes)
        refused = self._keep_up(seen, nodes)
        self._hold_back(seen)
        known = read_known(site.ledger, seen, settings, self._so_far)
        queue = queue_of(waiting, seen, known, self._held_back)
        made = make_plan(queue, waiting, seen, known)
        if self._fall_back(made, seen, nodes):
            self._hold_back(seen)
            queue = queue_of(waiting, seen, known, self._held_back)
            made = make_plan(queue, waiting, seen, known)
        granted = grant_starts(site, term, made, seen, gates)
        stops = mark_stops(site, term, made, seen, run_to_grow(made, seen, waiting, known))
        site.ledger.calls.send(stops)
        self._held_up = granted.held_up
        give_back_untaken(site, seen)
        self._end_in_vain(seen)
        self._keep_turns(term, queue, seen)
        if self._behind_due.is_due():
            made = with_behind(made, queue, seen, known)
        made = self._starts.keep(made, seen, waiting, known.starts)
        waits, logged = self._tell(term, made, seen)
        planned = frozenset(entry.run_id for entry in made.entries)
        held_up = bool(granted.held_up)
        return Pass(granted.run_ids, tuple(refused), waits, logged, planned, held_up)

    def _keep_up(self, seen: PoolSnapshot, nodes: set[str]) -> list[str]:
        """Remember who waits now; gives runs whose next attempt no node could hold."""
        waiting = self._waiting
        gone = waiting.follow(seen)
        for run_id in gone:
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
                waiting.put(told, seen.waiting[told.run_id], nodes)
        self.called |= intake.called
        waiting.since = seen.until  # what could not be taken up is read again
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

    def _hold_back(self, seen: PoolSnapshot) -> None:
        before, self._held_back = self._held_back, held_back(self._waiting, seen)
        for run_id in before.keys() - self._held_back.keys():
            self._announced.forget(run_id)

    def _fall_back(self, made: Plan, seen: PoolSnapshot, nodes: set[str]) -> bool:
        """Let runs do without GPUs where they end sooner so; whether any does."""
        due = list(self._fallbacks.due(self._site, made, self._waiting, seen))
        for record in due:
            if record.prediction and record.demand:
                with suppress(LeaseLost):  # it was ended meanwhile
                    self._site.ledger.runs.predict(
                        record.unleased, record.prediction, record.demand
                    )
            self._forget(record.run_id)
            version = self._waiting.versions[record.run_id]
            self._waiting.put(record, version, nodes)
        return bool(due)

    def _keep_turns(self, term: Term, queue: Queue[WaitingRun], seen: PoolSnapshot) -> None:
        """Write down the tags and promises that are new, and now and then the virtual clock."""
        turns = new_turns(queue, self._waiting.turns)
        if turns or seen.clock is None or seen.at - seen.clock.at > _KEEP_CLOCK:
            clock = VirtualClock(seen.at, queue.virtual.attained)
            self._site.ledger.turns.keep(term, clock, turns)

    def _tell(
        self, term: Term, made: Plan, seen: PoolSnapshot
    ) -> tuple[dict[str, str], frozenset[str]]:
        """Write down what runs wait for, where that is news."""
        reasons, sentences, logged = self._announced.news(
            made, seen, self._waiting, self._held_back
        )
        try:
            self._site.ledger.runs.set_reasons(reasons, term)
        except HeadwayError:
            for run_id in sentences:  # nobody was told: the next pass tells them
                self._announced.forget(run_id)
            raise
        return sentences, logged
