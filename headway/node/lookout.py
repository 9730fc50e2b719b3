"""What the guard knows: which containers are alive here, and what the ledger said of their leases.

To look may take long, as engine and ledger do; what was seen can be read at any time.
"""

import logging
import threading
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from headway.errors import LedgerError
from headway.home import node_identity
from headway.ledger.renewals import RenewalAnswer
from headway.model.job_text import USUAL_STOP_GRACE_S, stop_grace_s
from headway.node.flowlock import LiveFlows
from headway.policy.guard import GuardTimes, Held
from headway.run.guard_notes import GuardNotes, Renewal, keep_notes, read_notes
from headway.run.here import container_name
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerState, ContainerStatus, Runtime
from headway.site import Site
from headway.units import format_duration

log = logging.getLogger(__name__)

Containers = Mapping[str, ContainerStatus]
_Note = TypeVar("_Note")


@dataclass(frozen=True)
class _Seen:
    """What was seen last; exchanged as a whole."""

    alive: Containers = field(default_factory=dict)
    stale: frozenset[str] = frozenset()
    """Those of them that the ledger says belong to no live attempt."""


class Lookout:
    """Looks at engine and ledger for the guard; what an earlier guard has noted holds."""

    def __init__(self, site: Site, times: GuardTimes) -> None:
        """Look at *site*'s node."""
        self._site = site
        self._times = times
        self._identity = node_identity(site.settings.home)
        self._state_dir = site.settings.state_dir
        self._state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._notes = read_notes(self._state_dir)
        self._flows = LiveFlows(self._state_dir, site.clock)
        self._seen = _Seen()
        self._change = threading.Lock()
        """Held to exchange what was seen or noted: two threads do."""
        self._others = True
        """Whether another node could be given a place here; so until the ledger says no."""
        self._trouble: dict[str, str] = {}
        self.runtime: Runtime | None = None
        """None until this node's worker has settled which one there is."""
        self.asked_s: float | None = None
        """When the ledger was last asked; None where it never was."""

    def held(self) -> list[Held]:
        """The containers that were alive, with the last renewal of each."""
        with self._change:
            seen, renewals = self._seen, self._notes.renewals
        return [
            Held(name, known.grace_s, known.at_s, known.expires, name in seen.stale)
            for name in seen.alive
            if (known := renewals.get(name)) is not None
        ]

    def note_stopped(self, name: str, why: str) -> None:
        """Keep for the run's flow that it is the guard that stops the container."""
        with self._change:
            notes = self._notes
            self._keep(replace(notes, stopped={**notes.stopped, name: why}))

    def forget(self, name: str) -> None:
        """The container was stopped: it is not alive any more."""
        with self._change:
            alive = {each: status for each, status in self._seen.alive.items() if each != name}
            self._seen = replace(self._seen, alive=alive)

    def look(self) -> None:
        """See what is alive here, have the ledger renew it, and note what it answers."""
        asked_s = self._site.clock.boottime_s()
        first, self.asked_s = self.asked_s is None, asked_s
        listed = self._listed()
        # One that has ended while the engine was away keeps its place a little longer.
        alive = self._seen.alive if listed is None else _running(listed)
        if not first:  # a new guard lets the ledger speak before it goes by notes
            with self._change:
                self._seen = replace(self._seen, alive=alive)
        expire, answer, trouble = self._others, None, ""
        try:
            answer = self._ask(alive, expire=expire)
        except LedgerError as error:
            trouble = str(error)
        self._take_in(alive, listed, answer, asked_s, expire=expire)
        self._say("ledger", trouble and f"{trouble} {self._what_follows(alive)}")

    def _listed(self) -> Containers | None:
        """This site's containers here, whatever their state; None where the engine is away."""
        self.runtime = self._site.chosen.for_stopping(self.runtime)
        try:
            listed = self.runtime.containers() if self.runtime is not None else []
        except RuntimeFailure as error:
            self._say("engine", f"{error}; what was alive goes on to be guarded")
            return None
        self._say("engine", "")
        return {each.name: each for each in listed}

    def _ask(self, alive: Containers, *, expire: bool) -> RenewalAnswer:
        return self._site.ledger.renewals.renew(
            self._site.settings.node,
            self._identity,
            containers={(each.run_id, each.attempt) for each in alive.values()},
            flows=self._flows.now(),
            ttl_s=self._times.ttl_s,
            expire=expire,
        )

    def _take_in(
        self,
        alive: Containers,
        listed: Containers | None,
        answer: RenewalAnswer | None,
        asked_s: float,
        *,
        expire: bool,
    ) -> None:
        """Note what was seen. Without an *answer*, what the ledger said before goes on to hold."""
        with self._change:
            notes, stale = self._notes, frozenset(self._seen.stale & alive.keys())
            renewals = notes.renewals
            if answer is not None:
                self._others = answer.others
                renewed = {
                    container_name(run_id, attempt): Renewal(
                        asked_s, expire or answer.others, stop_grace_s(job)
                    )
                    for (run_id, attempt), job in answer.renewed.items()
                }
                stale = frozenset(alive.keys() - renewed.keys())
                renewals = {**renewals, **renewed}
                if listed is not None:
                    renewals = _of(renewals, renewed.keys() | alive.keys())
                    notes = replace(notes, stopped=_of(notes.stopped, listed))
            self._seen = _Seen(alive, stale)
            self._keep(replace(notes, renewals=self._completed(renewals, alive)))

    def _completed(
        self, renewals: Mapping[str, Renewal], alive: Containers
    ) -> Mapping[str, Renewal]:
        """*renewals*, with those too that began under no guard: their leases were good then."""
        clock, found = self._site.clock, dict(renewals)
        for name in alive.keys() - renewals.keys():
            begun_at = alive[name].started_at or clock.now()
            age_s = max((clock.now() - begun_at).total_seconds(), 0.0)
            found[name] = Renewal(clock.boottime_s() - age_s, True, USUAL_STOP_GRACE_S)
        return found

    def _keep(self, notes: GuardNotes) -> None:
        self._notes = notes
        try:
            keep_notes(self._state_dir, notes)
        except OSError as error:
            self._say("notes", f"what was renewed is not kept in {self._state_dir}: {error}")

    def _what_follows(self, alive: Containers) -> str:
        renewals = [self._notes.renewals[name] for name in alive]
        if not any(each.expires for each in renewals):
            return f"{len(alive)} container(s) go on: no other node could be given their places."
        oldest_s = min(each.at_s for each in renewals if each.expires)
        left_s = oldest_s + self._times.end_s - self._site.clock.boottime_s()
        return (
            f"The leases of {len(alive)} container(s) cannot be renewed; the first one is gone "
            f"in {format_duration(max(left_s, 0.0))} unless it answers before."
        )

    def _say(self, about: str, trouble: str) -> None:
        """Log trouble once, and its end; an empty text means that all is well."""
        if trouble and not self._trouble.get(about):
            log.warning("%s", trouble)
        elif self._trouble.get(about) and not trouble:
            log.warning("the %s answers again", about)
        self._trouble[about] = trouble


def _of(notes: Mapping[str, _Note], names: Container[str]) -> Mapping[str, _Note]:
    return {name: note for name, note in notes.items() if name in names}


def _running(listed: Containers) -> Containers:
    running = ContainerState.RUNNING
    return {name: each for name, each in listed.items() if each.state is running}
