"""The runs that wait in a pool, kept from one pass to the next."""

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

from headway.estimate.claims import Claims
from headway.estimate.usual import Kind, Usual
from headway.ledger.pools import PoolSnapshot, Version
from headway.ledger.records import RunRecord
from headway.model.lease import Demand
from headway.model.run import Prediction
from headway.model.turn import Turn
from headway.policy.fit import WaitingRun
from headway.policy.settings import PolicySettings
from headway.scheduler.limits import Gates
from headway.scheduler.snapshot import kind_of_run, length


def _copy_of(run: WaitingRun) -> WaitingRun:
    other = copy(run)
    other.larger = tuple(map(copy, run.larger))
    return other


@dataclass(frozen=True, slots=True)
class Entry:
    """A run that waits: as the ledger has it, and as a plan takes it."""

    record: RunRecord
    run: WaitingRun
    kind: Kind
    said_s: tuple[tuple[float, float], ...]
    """Median and upper quantile of the runtime that was said of it, and at each larger size."""

    def as_long_as_its_like(self, claims: Claims) -> WaitingRun:
        """Its run, taken to last as *claims* say of what was said of it."""
        times = claims.times(self.kind, self.said_s[0][0])
        for run, (median_s, high_s) in zip((self.run, *self.run.larger), self.said_s, strict=True):
            run.median_s, run.high_s, run.overrun_work_s = median_s, high_s, 0.0
            if times > 1.0:
                run.lengthened(times)
        return self.run

    def with_length(self, run: WaitingRun, usual: Usual) -> WaitingRun:
        """*run* with what its like last, where nothing was learnt of its own length."""
        return replace(run, lasts=length(run.lasts, self.kind, usual))


class Waiting:
    """The entries by run."""

    def __init__(self) -> None:
        """Nobody waits."""
        self.entries: dict[str, Entry] = {}
        self.versions: dict[str, Version] = {}
        """As what each run of the queue is known, those without a demand too."""
        self.turns: dict[str, Turn] = {}
        self.since = 0
        """What the next snapshot is to tell the changes since."""
        self.settings = PolicySettings()
        self.gates = Gates()

    def copy(self) -> Self:
        """One with runs of its own: a plan gives its runs tags and promises."""
        other = type(self)()
        other.entries = {
            run_id: replace(entry, run=_copy_of(entry.run))
            for run_id, entry in self.entries.items()
        }
        other.settings, other.gates = self.settings, self.gates
        other.versions, other.turns = dict(self.versions), dict(self.turns)
        return other

    def follow(self, seen: PoolSnapshot) -> set[str]:
        """Take up what *seen* says of places in the queue; gives the runs that wait no more.

        What has changed of runs, `PoolSnapshot.changed`, is for the reader to `put`.
        """
        gone = {run_id for run_id in seen.gone if run_id in self.versions}
        if not self.since:
            gone = self.versions.keys() - seen.waiting.keys()
        for run_id in gone:
            self.remove(run_id)
        for run_id in seen.waiting:
            self.turns.pop(run_id, None)
        self.turns |= seen.turns
        return gone

    def go_by(self, settings: PolicySettings, gates: Gates, nodes: Collection[str]) -> None:
        """Read the entries anew where an operator changed knobs or priorities."""
        same = self.settings == settings and self.gates.priorities == gates.priorities
        self.settings, self.gates = settings, gates
        if same:
            return
        for entry in self.entries.values():
            if entry.record.demand is not None:
                self._enter(entry.record, entry.record.demand, nodes)

    def put(self, record: RunRecord, version: Version, nodes: Collection[str]) -> None:
        """*record* waits, or has changed; one of which no demand is known does not yet.

        Args:
            record: The run.
            version: As the snapshot had it.
            nodes: Names of the pool's nodes: a work queue of such a name binds a run to it.
        """
        self.versions[record.run_id] = version
        self.entries.pop(record.run_id, None)
        if record.demand is not None:
            self._enter(record, record.demand, nodes)

    def remove(self, run_id: str) -> None:
        """The run waits no more."""
        self.entries.pop(run_id, None)
        self.versions.pop(run_id, None)
        self.turns.pop(run_id, None)

    def _enter(self, record: RunRecord, demand: Demand, nodes: Collection[str]) -> None:
        run = self.as_waiting(record, demand, nodes)
        said_s = tuple((each.median_s, each.high_s) for each in (run, *run.larger))
        self.entries[record.run_id] = Entry(record, run, kind_of_run(record), said_s)

    def as_waiting(
        self, record: RunRecord, demand: Demand, nodes: Collection[str] = ()
    ) -> WaitingRun:
        """*record* as it waits, or waited; *nodes* as for `put`."""
        said = record.prediction
        promised = record.promised_at
        again = record.attempt > 1 and (demand.nodes > 0 or record.goes_on)

        def at(demand: Demand, said: Prediction | None, **more: Any) -> WaitingRun:
            return WaitingRun.of(
                record.run_id,
                demand,
                record.submitted_at,
                settings=self.settings,
                median_s=said.runtime_s if said else None,
                high_s=said.runtime_high_s if said else None,
                team=record.team,
                user=record.owner,
                priority=self.gates.priorities.get(record.queue, record.priority),
                limit_s=kind_of_run(record).limit_s,
                nodes=demand.nodes or record.nodes,
                node=record.queue if record.queue in nodes else "",
                queue=record.queue,
                lasts=said.learnt if said else None,
                name=record.name,
                tag=record.tag,
                promised_s=promised and promised.timestamp(),
                home=record.node or "" if again else "",
                **more,
            )

        others = said.sizes[1:] if said is not None else ()
        return at(demand, said, larger=tuple(at(each.demand, each.said) for each in others))
