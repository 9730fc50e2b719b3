"""The node's janitor: compares ledger, Prefect, processes and containers, and mends.

What is to be done about one run is decided by `policy.reconcile`; here the
four sides are read and the instructions carried out. Whatever fails is tried
again with the next round.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from headway.errors import HeadwayError, LeaseLost, LedgerUnreachable, RunUnknown
from headway.ledger.records import RunRecord
from headway.model.job_text import kept_job, stop_grace_s
from headway.model.lease import Fence, Lease
from headway.model.run import (
    DELETED,
    Exit,
    ExitKind,
    Measurement,
    RunState,
    cancelled_by,
)
from headway.node.flowrun import live_flow
from headway.node.sweep import sweep
from headway.policy.demand import attempts_left
from headway.policy.reconcile import Action, PrefectView, Situation, reconcile
from headway.run.here import container_name
from headway.site import Site
from headway.this_node import remove_container

log = logging.getLogger(__name__)

ON_PREFECT = frozenset(
    {Action.RESCHEDULE, Action.SET_RUNNING, Action.SET_CANCELLED, Action.SET_FINAL}
)
"""Instructions that only the worker can carry out: they change Prefect's state."""


@dataclass(frozen=True, slots=True)
class PrefectRun:
    """What Prefect says of one run."""

    view: PrefectView
    flow_starts: int = 0
    message: str = ""
    """Of its state."""


@dataclass(frozen=True, slots=True)
class Mending:
    """A change of Prefect's state that the worker still has to make."""

    run_id: str
    action: Action
    exit: Exit | None
    """How the run ended, for `SET_FINAL`."""


class _Case(NamedTuple):
    """One run that the janitor looks after."""

    run: RunRecord
    container: str
    """Name of the container that its lease stands for, or its attempt."""
    prefect: PrefectRun
    lease: Lease | None
    """Here; of a run that waits, what the attempt before has left."""

    @property
    def fence(self) -> Fence:
        """The right to write for the attempt as it was read: what changed since is not undone."""
        own = self.lease is not None and self.lease.attempt == self.run.attempt
        return self.lease.fence if self.lease is not None and own else self.run.unleased


_DELETED = PrefectRun(PrefectView.MISSING)
_WAITING_A_ROUND = 200


class Janitor:
    """Mends this node."""

    def __init__(self, site: Site) -> None:
        """Mend *site*'s node."""
        self._site = site
        self._turn = ""
        self._amiss = ""

    def unsettled(self) -> list[RunRecord]:
        """Runs of this node that Prefect must be asked about, and some of the queue's.

        A long line is asked about in turns: its runs cost nothing meanwhile, and
        a cancelled one that comes to its turn is not started in any case.
        """
        ledger, node = self._site.ledger, self._site.settings.node
        open_runs = ledger.runs.on_node(node)
        waiting = ledger.runs.waiting_page(self._site.settings.pool, self._turn, _WAITING_A_ROUND)
        self._turn = waiting[-1].run_id if len(waiting) == _WAITING_A_ROUND else ""
        open_runs += waiting
        known = {run.run_id for run in open_runs}
        left = {lease.run_id for lease in ledger.leases.live(node) if lease.gang_rank == 0}
        left |= {container.run_id for container in self._site.runtime.containers()}
        for run_id in sorted(left - known):
            with suppress(RunUnknown):  # of a ledger before this one; its container is swept
                open_runs.append(ledger.runs.get(run_id))
        return open_runs

    def round(
        self,
        runs: list[RunRecord],
        prefect: Mapping[str, PrefectRun],
        starting: frozenset[str],
    ) -> list[Mending]:
        """One round over *runs*; returns what remains for the worker to do.

        Args:
            runs: From `unsettled`, read *before* Prefect was asked.
            prefect: What Prefect says; a run that is missing here was deleted.
            starting: Runs whose flow process this worker is starting right now.
        """
        containers = {c.name: c for c in self._site.runtime.containers()}
        wanted: set[str] = set()
        mendings: list[Mending] = []
        for run in runs:
            lease = self._lease_here(run)
            name = container_name(run.run_id, lease.attempt if lease is not None else run.attempt)
            wanted.add(name)
            case = _Case(run, name, prefect.get(run.run_id, _DELETED), lease)
            alive = live_flow(self._site.settings.state_dir, run.run_id) is not None
            try:
                situation = Situation(
                    state=run.state,
                    prefect=case.prefect.view,
                    flow_alive=alive or run.run_id in starting,
                    container=name in containers,
                    has_lease=lease is not None,
                    flow_starts=case.prefect.flow_starts,
                    attempts_left=_attempts_left(run),
                    is_rank=run.gang_id is not None,
                )
                mendings += self._mend(case, reconcile(situation))
            except LedgerUnreachable:
                raise  # it would be the same for every other run, each after a long wait
            except HeadwayError as error:
                log.warning("run %s (%s) was not looked after: %s", run.name, run.run_id, error)
        self._guard_network()
        without_run = [each for name, each in containers.items() if name not in wanted]
        sweep(self._site, containers.values(), without_run)
        return mendings

    def _guard_network(self) -> None:
        try:
            amiss = self._site.runtime.guard_network()
        except HeadwayError as error:
            amiss = f"containers may not be kept from this node now: {error}"
        if amiss and amiss != self._amiss:
            log.warning("%s", amiss)
        self._amiss = amiss

    def _mend(self, case: _Case, actions: Iterable[Action]) -> list[Mending]:
        """Carry *actions* out as far as they succeed; those that are left to the worker."""
        mendings, run = [], case.run
        for action in actions:
            if action in ON_PREFECT:
                mendings.append(Mending(run.run_id, action, self._exit_of(run.run_id)))
                continue
            if action is not Action.RENEW:
                log.warning("run %s (%s): %s", run.name, run.run_id, action.value)
            if not self._carried_out(action, case):
                break  # the instructions build on each other
        return mendings

    def _lease_here(self, run: RunRecord) -> Lease | None:
        """The run's lease on this node. Of a waiting run only that of an attempt before.

        A waiting run that has a lease of its own attempt was claimed since it was read.
        """
        lease = self._site.ledger.leases.of_run(run.run_id)
        if lease is None or lease.node != self._site.settings.node:
            return None
        claimed_since = run.state is RunState.WAITING and lease.attempt >= run.attempt
        return None if claimed_since else lease

    def _carried_out(self, action: Action, case: _Case) -> bool:
        run = case.run
        try:
            try:
                self._carry_out(action, case)
            except LeaseLost as error:
                if self._site.ledger.runs.get(run.run_id).state is RunState.ENDED:
                    return True  # its flow let go of it in this moment
                log.warning("%s", error)
                if not self._held_again(case):
                    # Nobody may hold what was promised to others: the container goes.
                    remove_container(self._site, case.container, run.run_id)
        except HeadwayError as error:
            log.warning("%s of run %s: %s; tried again next round", action, run.run_id, error)
            return False
        return True

    def _held_again(self, case: _Case) -> bool:
        """Whether the container may be that of a grant that was made since the run was read."""
        lease = self._site.ledger.leases.of_run(case.run.run_id)
        if lease is None or lease.node != self._site.settings.node:
            return False
        return container_name(lease.run_id, lease.attempt) == case.container

    def _carry_out(self, action: Action, case: _Case) -> None:
        ledger, (run, container, prefect, lease) = self._site.ledger, case
        match action:
            case Action.RENEW if lease is not None:
                ledger.leases.renew(lease.fence, self._site.settings.lease_ttl_s)
            case Action.STOP_CONTAINER:
                self._site.runtime.stop(container, stop_grace_s(run.job))
                remove_container(self._site, container, run.run_id)
            case Action.RELEASE:
                self._release(case)
            case Action.END_CANCELLED | Action.END_BROKEN | Action.END_INFRASTRUCTURE:
                ledger.runs.finish(case.fence, _exit(action, run, prefect), Measurement())
            case Action.REQUEUE:
                then = f"the run goes back to the queue as attempt {run.attempt + 1}"
                ledger.runs.requeue(case.fence, _vanished(run, then))
                self._release(case)  # the next attempt may be on another node
            case Action.GIVE_BACK:
                self._site.cache.release(run.run_id)
                ledger.leases.give_back(case.fence)
            case _:
                pass

    def _release(self, case: _Case) -> None:
        self._site.cache.release(case.run.run_id)
        if case.lease is not None:
            self._site.ledger.leases.release(case.lease.fence)

    def abandon(self, node: str, prefect: Mapping[str, PrefectRun]) -> list[Mending]:
        """End or requeue what *node* has, whose machine does not come back; release all it holds.

        Only an operator can know that: a node that is merely silent may go on
        training. Those that go back to the queue are offered to it again by the
        janitors of the nodes that are left.

        Args:
            node: The node. Its containers are taken for gone.
            prefect: What Prefect says of its runs; one that is missing here was deleted.

        Returns:
            What remains to be done on Prefect's side for each run, `RESCHEDULE` included.
        """
        ledger, done = self._site.ledger, []
        for run in ledger.runs.on_node(node):
            said = prefect.get(run.run_id, _DELETED)
            situation = Situation(
                state=run.state,
                prefect=said.view,
                flow_alive=False,
                container=False,
                has_lease=True,
                # Of a gang, only the run that leads it is tried again.
                attempts_left=run.gang_id is None and _attempts_left(run),
                is_rank=run.gang_id is not None,
            )
            for action in reconcile(situation):
                if action in ON_PREFECT:
                    done.append(Mending(run.run_id, action, self._exit_of(run.run_id)))
                else:
                    name = container_name(run.run_id, run.attempt)
                    held = ledger.leases.of_run(run.run_id)
                    self._carry_out(action, _Case(run, name, said, held))
        ledger.leases.release_node(node)
        return done

    def stop_container(self, run_id: str) -> None:
        """Stop the container of the run's attempt within its grace time; its flow does the rest."""
        run = self._site.ledger.runs.get(run_id)
        grace_s = stop_grace_s(run.job)
        self._site.runtime.stop(container_name(run_id, run.attempt), grace_s)

    def _exit_of(self, run_id: str) -> Exit | None:
        return self._site.ledger.runs.get(run_id).exit


def _attempts_left(run: RunRecord) -> bool:
    job = kept_job(run.job)
    return job is not None and attempts_left(run.attempt, job.retries, run.preemptions)


def _exit(action: Action, run: RunRecord, prefect: PrefectRun) -> Exit:
    """How a run ends that the janitor ends."""
    if action is Action.END_BROKEN:
        return Exit(ExitKind.INFRASTRUCTURE, None, "its flow broke: see the run's log")
    if action is Action.END_INFRASTRUCTURE:
        return _vanished(run, "it was tried as often as the job allows; submit it again")
    deleted = prefect.view is PrefectView.MISSING
    return Exit(ExitKind.CANCELLED, None, DELETED if deleted else cancelled_by(prefect.message))


def _vanished(run: RunRecord, then: str) -> Exit:
    return Exit(
        ExitKind.INFRASTRUCTURE,
        None,
        f"the container of attempt {run.attempt} is gone from node {run.node} "
        f"without an exit code; {then}",
    )
