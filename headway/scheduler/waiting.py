"""The runs that wait in a pool, kept sorted from one pass to the next."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headway.estimate.usual import Kind, Usual, kind_of
from headway.ledger.records import RunRecord
from headway.model.job_text import job_nodes
from headway.model.lease import Demand
from headway.policy.fit import WaitingRun
from headway.policy.settings import PolicySettings
from headway.policy.sorted_queue import SortedQueue
from headway.scheduler.limits import Gates
from headway.scheduler.snapshot import length


@dataclass(frozen=True, slots=True)
class Entry:
    """A run that waits: as the ledger has it, and as a plan takes it."""

    record: RunRecord
    run: WaitingRun
    kind: Kind

    def with_length(self, run: WaitingRun, usual: Usual) -> WaitingRun:
        """*run* with what its like last, where nothing was learnt of its own length."""
        return replace(run, lasts=length(run.lasts, self.kind, usual))


class Waiting:
    """The entries by run, and their order."""

    def __init__(self) -> None:
        """Nobody waits."""
        self.entries: dict[str, Entry] = {}
        self.sorted = SortedQueue(PolicySettings())
        self.gates = Gates()

    def attempts(self) -> dict[str, int]:
        """The attempt of each run, as of which it is known."""
        return {run_id: entry.record.attempt for run_id, entry in self.entries.items()}

    def sort_by(self, settings: PolicySettings, gates: Gates, nodes: Collection[str]) -> None:
        """Sort anew where an operator changed knobs or priorities."""
        same = self.sorted.settings == settings and self.gates.priorities == gates.priorities
        self.gates = gates
        if same:
            return
        self.sorted = SortedQueue(settings)
        for entry in self.entries.values():
            if entry.record.demand is not None:
                self._enter(entry.record, entry.record.demand, nodes)

    def put(self, record: RunRecord, nodes: Collection[str]) -> None:
        """*record* waits, or has changed; one of which no demand is known does not yet.

        Args:
            record: The run.
            nodes: Names of the pool's nodes: a work queue of such a name binds a run to it.
        """
        self.remove(record.run_id)
        if record.demand is not None:
            self._enter(record, record.demand, nodes)

    def remove(self, run_id: str) -> None:
        """The run waits no more."""
        if (entry := self.entries.pop(run_id, None)) is not None:
            self.sorted.remove(entry.run)

    def _enter(self, record: RunRecord, demand: Demand, nodes: Collection[str]) -> None:
        said = record.prediction
        run = WaitingRun.of(
            record.run_id,
            demand,
            record.submitted_at,
            settings=self.sorted.settings,
            median_s=said.runtime_s if said else None,
            high_s=said.runtime_high_s if said else None,
            team=record.team,
            priority=self.gates.priorities.get(record.queue, record.priority),
            nodes=job_nodes(record.job),
            node=record.queue if record.queue in nodes else "",
            queue=record.queue,
            lasts=said.learnt if said else None,
            name=record.name,
        )
        self.entries[record.run_id] = Entry(record, run, kind_of(record.job, record.owner))
        self.sorted.add(run)

    def front(
        self, usage: Mapping[str, float], due: Mapping[str, WaitingRun], left_out: Collection[str]
    ) -> list[WaitingRun]:
        """The runs that a plan can concern: those that are *due*, and the first of the others.

        Args:
            usage: Decayed GPU-seconds of the teams.
            due: By id, runs that go first because they have waited long or were overtaken most.
            left_out: Runs that nothing could start now: a window full of them would stop all.
        """
        out = [self.entries[run_id].run for run_id in left_out]
        for run in out:
            self.sorted.remove(run)
        first = self.sorted.front(usage, list(due.values()))
        for run in out:
            self.sorted.add(run)
        chosen = dict.fromkeys([*due, *(ask.run_id for ask in first)])
        return [due.get(run_id) or self.entries[run_id].run for run_id in chosen]
