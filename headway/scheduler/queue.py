"""This node's look at the line: the pool's plan, and what of it starts here now.

Every worker of a pool plans from the same rows; each grants only on its own
node. One of them, the first by name that is heard of, writes down why the
others wait.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import nsmallest
from itertools import islice
from typing import Any

from headway.errors import InvalidInput
from headway.estimate.usual import LOOKED_AT, Kind, Usual, kind_of
from headway.ledger.lines import Snapshot
from headway.ledger.records import RunRecord
from headway.ledger.runs import Reason
from headway.model.attempt import Standing
from headway.model.job_text import job_from_document, job_nodes
from headway.model.lease import Demand, Lease, Resource, Wait
from headway.model.node import NodeState
from headway.model.run import RunState
from headway.node.flowrun import live_flow
from headway.policy.admission import shut_out
from headway.policy.board import Ask
from headway.policy.line import Groups
from headway.policy.news import Said, said_anew
from headway.policy.order import first_come_wait_s, looked_at, waited_long
from headway.policy.plan import (
    Plan,
    Start,
    Stay,
    WaitingRun,
    ask_of,
    plan,
)
from headway.policy.settings import PolicySettings
from headway.scheduler.cpu_fallback import Fallbacks
from headway.scheduler.fair_share import TeamUsage
from headway.scheduler.limits import Counts, Gates, read_gates
from headway.scheduler.snapshot import is_lost, length, node_view, running_run, usual_of
from headway.site import Site

_REASONS_A_PASS = 100


@dataclass(frozen=True, slots=True)
class Offer:
    """A scheduled flow run as Prefect offers it."""

    run_id: str
    name: str
    document: Mapping[str, Any] | None
    """The job; None for a flow that is no training run."""
    submitted_at: datetime
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one look at the line decided."""

    start: tuple[str, ...] = ()
    """Runs whose flow process is to be started now, in order."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Runs of which there is news why they wait: reason, place and expected start."""
    logged: frozenset[str] = frozenset()
    """Those of them whose news is worth a line of their logs."""
    preempt: tuple[str, ...] = ()
    """Runs of this node whose containers are to be stopped for others."""


class Line:
    """Plans for the pool of one node, and grants on that node."""

    def __init__(self, site: Site, pool: str = "") -> None:
        """Look at the line for *site*'s node; another *pool* than its own only for a preview."""
        self._site = site
        self._pool = pool or site.settings.pool
        self._known: dict[str, int] = {}
        self._waiting: dict[str, WaitingRun] = {}
        self._kinds: dict[str, Kind] = {}
        self._asks: dict[str, Ask] = {}
        self._groups = Groups(PolicySettings())
        self._gates = Gates()
        self._queues: dict[str, str] = {}
        self._usage = TeamUsage()
        self._said: dict[str, Said] = {}
        self._held_back: dict[str, Wait] = {}
        self._fallbacks = Fallbacks(site)

    # -- what is new ------------------------------------------------------------------

    @property
    def known(self) -> frozenset[str]:
        """Runs that wait in the ledger, as of the last look: they need no new offer."""
        return frozenset(self._known)

    def orphans(self) -> list[str]:
        """Granted runs of this node without a flow process; Prefect may offer them again."""
        node, state_dir = self._site.settings.node, self._site.settings.state_dir
        granted = [one for one in self._site.ledger.leases.live(node) if one.gang_rank == 0]
        return [lease.run_id for lease in granted if live_flow(state_dir, lease.run_id) is None]

    def take_in(self, offers: Iterable[Offer]) -> list[str]:
        """Put new runs into the line; gives those to be started at once.

        These are flows that are no training runs, unless they are handed to
        another node; what can never run, because
        its job is wrong or no node could hold it: its flow says so and fails;
        and granted runs whose flow process died.
        """
        return [offer.run_id for offer in offers if self._starts_at_once(offer)]

    def _starts_at_once(self, offer: Offer) -> bool:
        site = self._site
        if offer.document is None:
            elsewhere = {node.name for node in site.nodes()} - {site.settings.node}
            return offer.queue not in elsewhere
        try:
            job = job_from_document(offer.document)
        except InvalidInput:
            return True
        record = site.ledger.runs.enqueue(
            offer.run_id,
            job.document(),
            name=offer.name,
            owner=job.owner,
            team=job.team,
            pool=self._pool,
            queue=offer.queue,
            priority=self._gates.priorities.get(offer.queue, 0),
            submitted_at=offer.submitted_at,
        )
        if record.state is not RunState.WAITING:
            here = record.node == site.settings.node
            return here and live_flow(site.settings.state_dir, record.run_id) is None
        return record.demand is None and self._is_impossible(record)

    def _is_impossible(self, record: RunRecord) -> bool:
        """Say what the run will need; whether no node of the pool could ever hold that."""
        site = self._site
        prediction, demand = site.forecast(
            job_from_document(record.job),
            dataset_bytes=None,
            override=record.demand_override,
            pool=record.pool,
            queue=record.queue,
        )
        site.ledger.runs.predict(record.run_id, prediction, demand)
        return site.refusal(record, demand) is not None

    # -- the plan ---------------------------------------------------------------------

    def preview(self, also: Sequence[WaitingRun] = ()) -> Plan:
        """The plan as it is now, with *also* in the line; grants and writes nothing."""
        return self.previews()(also)

    def previews(self) -> Callable[[Sequence[WaitingRun]], Plan]:
        """`preview` for several questions about one moment: the pool is read only once."""
        settings, gates = self._site.policy_settings, self._read_gates()
        seen = self._snapshot({}, settings, gates)
        nodes = {record.node.name for record in seen.nodes}
        self._sort_by(settings, gates)
        for record in seen.changed:
            if record.demand is not None:
                self._remember(record, record.demand, nodes)
        return lambda also: self._plan(seen, self._gates, settings, also)

    def look(self, gates: Gates | None = None) -> Pass:
        """One look: plan, grant what starts on this node, say why the others wait."""
        gates = gates or self._read_gates()
        settings = self._site.policy_settings
        seen = self._snapshot(self._known, settings, gates)
        self._sort_by(settings, gates)
        refused = self._keep_up(seen)
        made = self._plan(seen, gates, settings)
        if self._fall_back(made, seen):
            made = self._plan(seen, gates, settings)
        start = [*refused, *self._grant(made, seen, gates)]
        told = self._tell(made, seen, gates) if self._speaks_for_the_pool(seen) else {}
        now_s = seen.at.timestamp()
        logged = frozenset(run_id for run_id in told if self._said[run_id].logged_s == now_s)
        return Pass(tuple(start), told, logged, tuple(self._preempted(made, seen)))

    def give_back(self, run_id: str) -> None:
        """The claim was lost to Prefect: the run was cancelled, or is somebody else's."""
        lease = self._site.ledger.leases.of_run(run_id)
        if lease is not None and lease.node == self._site.settings.node:
            self._site.ledger.leases.give_back(run_id, lease.token)

    def _snapshot(
        self, known: Mapping[str, int], settings: PolicySettings, gates: Gates
    ) -> Snapshot:
        return self._site.ledger.lines.snapshot(
            self._pool,
            known,
            overtaken_from=settings.overtake_limit,
            priorities=gates.priorities,
        )

    def _keep_up(self, seen: Snapshot) -> list[str]:
        """Remember the line as it is now; gives runs whose next attempt no node could hold."""
        for run_id in self._known.keys() - seen.waiting.keys():
            self._forget(run_id)
        nodes = {record.node.name for record in seen.nodes}
        refused = []
        for record in seen.changed:
            if record.demand is None or record.demand_override is not None:
                if self._is_impossible(record):
                    refused.append(record.run_id)
                    continue
                record = self._site.ledger.runs.get(record.run_id)  # noqa: PLW2901 - with its demand
            if record.demand is not None:
                self._remember(record, record.demand, nodes)
        return refused

    def _fall_back(self, made: Plan, seen: Snapshot) -> bool:
        """Let runs do without GPUs where they end sooner so; whether any does.

        Every worker decides alike from the same rows; one of them writes it down.
        """
        due = list(self._fallbacks.due(made, self._waiting, seen))
        for record, said, demand in due:
            if self._speaks_for_the_pool(seen):
                self._site.ledger.runs.predict(record.run_id, said, demand)
            told = replace(record, prediction=said, demand=demand)
            self._remember(told, demand, {each.node.name for each in seen.nodes})
        return bool(due)

    def _read_gates(self) -> Gates:
        return read_gates(self._site.ledger, self._pool)

    def _sort_by(self, settings: PolicySettings, gates: Gates) -> None:
        """Keep the line sorted; sort it anew when an operator changed knobs or priorities."""
        if self._groups.settings == settings and self._gates.priorities == gates.priorities:
            self._gates = gates
            return
        self._gates, self._groups = gates, Groups(settings)
        for run_id, run in self._waiting.items():
            priority = gates.priorities.get(self._queues[run_id], run.priority)
            self._waiting[run_id] = replace(run, priority=priority)
            self._asks[run_id] = ask_of(self._waiting[run_id], settings)
            self._groups.add(self._asks[run_id])

    def _forget(self, run_id: str) -> None:
        self._groups.remove(self._asks.pop(run_id))
        self._fallbacks.forget(run_id)
        del self._known[run_id], self._waiting[run_id], self._queues[run_id], self._kinds[run_id]
        self._said.pop(run_id, None)

    def _remember(self, record: RunRecord, demand: Demand, nodes: set[str]) -> None:
        if record.run_id in self._known:
            self._forget(record.run_id)
        said = record.prediction
        self._known[record.run_id] = record.attempt
        self._queues[record.run_id] = record.queue
        self._waiting[record.run_id] = WaitingRun(
            run_id=record.run_id,
            demand=demand,
            submitted_at=record.submitted_at,
            team=record.team,
            priority=self._gates.priorities.get(record.queue, record.priority),
            median_s=said.runtime_s if said else None,
            high_s=said.runtime_high_s if said else None,
            nodes=job_nodes(record.job),
            node=record.queue if record.queue in nodes else "",
            lasts=said.learnt if said else None,
            name=record.name,
        )
        self._kinds[record.run_id] = kind_of(record.job, record.owner)
        self._fallbacks.note(record, demand)
        ask = ask_of(self._waiting[record.run_id], self._groups.settings)
        self._asks[record.run_id] = ask
        self._groups.add(ask)

    def _plan(
        self,
        seen: Snapshot,
        gates: Gates,
        settings: PolicySettings,
        also: Sequence[WaitingRun] = (),
    ) -> Plan:
        if gates.pool_paused:
            return Plan()
        since = self._usage.since(seen.at, settings)
        self._usage.catch_up(self._site.ledger.lines.used(since), seen.at, settings)
        teams = {record.run_id: record.team for record in seen.holders}
        usage = dict.fromkeys((ask.team for ask in self._asks.values()), 0.0)
        usage |= self._usage.with_live(seen.leases, teams, seen.at, settings)
        said = self._standings(seen)
        usual = usual_of(self._site.ledger.runs.lasted(LOOKED_AT), seen.holders, said)
        front = self._front(seen, gates, usage, settings)
        return plan(
            [node_view(record, seen) for record in seen.nodes],
            [*(self._with_length(run, usual) for run in front), *also],
            [running_run(r, seen, gates, said.get(r.run_id), usual) for r in seen.holders],
            now=seen.at,
            settings=settings,
            usage=usage,
        )

    def _with_length(self, run: WaitingRun, usual: Usual) -> WaitingRun:
        """*run* with what its like last, where nothing was learnt of its own length."""
        return replace(run, lasts=length(run.lasts, self._kinds[run.run_id], usual))

    def _standings(self, seen: Snapshot) -> dict[str, Standing]:
        following = [r.run_id for r in seen.holders if r.state is RunState.RUNNING]
        return self._site.ledger.standings.of(following)

    def _front(
        self, seen: Snapshot, gates: Gates, usage: Mapping[str, float], settings: PolicySettings
    ) -> list[WaitingRun]:
        """The runs that a plan can concern: the first of the line, and those overtaken most.

        Runs that nothing could start now take no place there: a window full of them would
        stop all others.
        """
        overtaken = {
            run_id: times
            for run_id, times in seen.overtaken.items()
            if times >= settings.overtake_limit and run_id in self._asks
        }
        before, self._held_back = self._held_back, self._hold_back(seen, gates)
        for run_id in before.keys() - self._held_back.keys():
            self._said.pop(run_id, None)  # what was said of it holds no more
        held_back = [self._asks[run_id] for run_id in self._held_back]
        due = [self._asks[run_id] for run_id in overtaken if run_id not in self._held_back]
        for ask in held_back:
            self._groups.remove(ask)
        long = self._long_waited(seen, {ask.run_id for ask in held_back}, settings)
        due += [ask for ask in long if ask.run_id not in overtaken]
        long_waited = {ask.run_id for ask in long}
        for ask in due:
            ask.long_waited = ask.run_id in long_waited
        front = self._groups.front(usage, due)
        for ask in due:
            ask.long_waited = False
        for ask in held_back:
            self._groups.add(ask)
        chosen = dict.fromkeys([ask.run_id for ask in (*front, *due)])
        return [
            replace(
                self._waiting[run_id],
                overtaken=overtaken.get(run_id, 0),
                long_waited=run_id in long_waited,
            )
            for run_id in chosen
            if run_id in seen.waiting
        ]

    def _hold_back(self, seen: Snapshot, gates: Gates) -> dict[str, Wait]:
        """Runs of paused queues, and those that only nodes could hold that are closed now."""
        nodes = [node_view(record, seen).node for record in seen.nodes]
        closed = any(node.state is not NodeState.READY for node in nodes)
        answers: dict[tuple[Demand, int, str], Wait | None] = {}
        found = {}
        for run_id, run in self._waiting.items() if gates.paused or closed else ():
            if run_id not in seen.waiting:
                continue
            queue = self._queues[run_id]
            if queue in gates.paused:
                found[run_id] = Wait(Resource.TURN, 0, f"work queue {queue} is paused")
                continue
            asks = (run.demand, run.nodes, run.node)
            if closed and asks not in answers:
                answers[asks] = shut_out(*asks, nodes)
            wait = answers.get(asks)
            if wait is not None:
                found[run_id] = wait
        return found

    def _long_waited(
        self, seen: Snapshot, passed_over: Collection[str], settings: PolicySettings
    ) -> list[Ask]:
        """Runs of the line that go first because they have waited long."""
        now_s = seen.at.timestamp()
        unknown_s = settings.unknown_runtime_s
        held = (
            (
                len(lease.gpus),
                lease.predicted_end_at.timestamp()
                if lease.predicted_end_at
                else lease.granted_at.timestamp() + unknown_s,
            )
            for lease in seen.leases
        )
        gpus = sum(len(record.node.capacity.gpus) for record in seen.nodes)
        first_come_s = first_come_wait_s(self._groups.work_s, held, gpus, now_s)
        line = (
            ask
            for run_id, ask in self._asks.items()
            if run_id in seen.waiting and run_id not in passed_over
        )
        oldest = nsmallest(looked_at(settings), line, key=lambda ask: (ask.submitted_s, ask.run_id))
        levels: dict[int, list[Ask]] = {}
        for ask in oldest:
            levels.setdefault(ask.priority, []).append(ask)
        return [
            ask
            for level in levels.values()
            for ask in waited_long(level, first_come_s, now_s, settings)
        ]

    def _grant(self, made: Plan, seen: Snapshot, gates: Gates) -> list[str]:
        """Claim in the ledger what the plan starts on this node, by the node's live readings."""
        site, started = self._site, []
        mine = [
            entry
            for entry in made.entries
            if isinstance(entry, Start)
            and entry.admits[0].node == site.settings.node  # of a gang, where rank 0 is
        ]
        reading = site.read_node() if mine else None
        counts = Counts.of(seen.holders)
        for entry in mine:
            queue = self._queues[entry.run_id]
            if not counts.may_start(queue, gates):
                continue
            if live_flow(site.settings.state_dir, entry.run_id) is not None:
                continue  # the process of its last attempt is leaving; its end wakes the worker
            record = site.ledger.runs.get(entry.run_id)
            if record.demand is None or record.prediction is None:
                continue  # somebody else's write is still under way
            answer = site.ledger.leases.admit(
                entry.run_id,
                site.settings.node,
                record.demand,
                reading=reading,
                others=[admit.node for admit in entry.admits[1:]],
                **site.lease_terms(record.prediction),
            )
            if isinstance(answer, Lease):
                started.append(entry.run_id)
                counts.add(queue)
        return started

    # -- what is said -----------------------------------------------------------------

    def _speaks_for_the_pool(self, seen: Snapshot) -> bool:
        heard = [r.node.name for r in seen.nodes if not is_lost(r, seen.at)]
        return bool(heard) and min(heard) == self._site.settings.node

    def _tell(self, made: Plan, seen: Snapshot, gates: Gates) -> dict[str, str]:
        """Write down what runs wait for, where that is news."""
        now_s = seen.at.timestamp()
        planned = {entry.run_id for entry in made.entries}
        waits = [entry for entry in made.entries if isinstance(entry, Stay)]
        # Those that start with this plan are no longer ahead of anybody.
        stays = {each.run_id: replace(each, position=at) for at, each in enumerate(waits, start=1)}
        news = [
            Reason(stay.run_id, stay.wait.resource, stay.wait.reason, stay.expected_at)
            for stay in stays.values()
            if self._is_news(stay.run_id, stay.wait, stay.sentence(), stay.expected_at, now_s)
        ]
        behind = sorted(
            run_id
            for run_id in self._known.keys() - planned
            if run_id in seen.waiting
            # The others were told that they are behind, or more.
            and (gates.pool_paused or run_id in self._held_back or run_id not in self._said)
        )
        held = ((run_id, self._not_planned(run_id, gates, len(planned))) for run_id in behind)
        news += islice(
            (
                Reason(run_id, wait.resource, wait.reason, None)
                for run_id, wait in held
                if self._is_news(run_id, wait, wait.reason, None, now_s)
            ),
            _REASONS_A_PASS,
        )
        self._site.ledger.runs.set_reasons(news)
        return {
            each.run_id: stays[each.run_id].sentence() if each.run_id in stays else each.reason
            for each in news
        }

    def _not_planned(self, run_id: str, gates: Gates, ahead: int) -> Wait:
        if gates.pool_paused:
            return Wait(Resource.TURN, 0, f"work pool {self._pool} is paused")
        if run_id in self._held_back:
            return self._held_back[run_id]
        return Wait(Resource.TURN, 0, f"at least {ahead} runs are ahead of it")

    def _is_news(
        self, run_id: str, wait: Wait, sentence: str, expected: datetime | None, now_s: float
    ) -> bool:
        expected_s = None if expected is None else expected.timestamp()
        said = self._said.get(run_id)
        found = said_anew(said, wait, sentence, expected_s, now_s)
        if found is not None:
            self._said[run_id] = found
        return found is not None

    def _preempted(self, made: Plan, seen: Snapshot) -> list[str]:
        """Runs of this node that are to stop: told now, or told before and still there."""
        mine = [lease for lease in seen.leases if lease.node == self._site.settings.node]
        here = {lease.run_id for lease in mine if lease.gang_rank == 0}
        runs = self._site.ledger.runs
        told = [r.run_id for r in seen.holders if r.run_id in here and r.preempted_for]
        new = [each for each in made.preempts if each.run_id in here]
        return told + [each.run_id for each in new if runs.preempt(each.run_id, each.for_run_id)]
