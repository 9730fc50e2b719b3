"""The node's janitor: compares ledger, Prefect, processes and containers, and mends.

What is to be done about one run is decided by `policy.reconcile`; here the
four sides are read and the instructions carried out. Whatever fails is tried
again with the next round.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headway.errors import HeadwayError, LeaseLost, LedgerUnreachable, RunUnknown
from headway.ledger.records import RunRecord
from headway.model.job_text import job_from_document
from headway.model.lease import Lease
from headway.model.run import (
    DELETED,
    GRANTED,
    Exit,
    ExitKind,
    Measurement,
    RunState,
    cancelled_by,
)
from headway.node.flowrun import live_flow
from headway.policy.demand import attempts_left
from headway.policy.reconcile import Action, PrefectView, Situation, reconcile
from headway.run.here import container_name, forget_secrets
from headway.runtime.port import ContainerStatus
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


_WAITING_A_ROUND = 200


class Janitor:
    """Mends this node."""

    def __init__(self, site: Site) -> None:
        """Mend *site*'s node."""
        self._site = site
        self._turn = ""
        self._amiss = ""
        self._prefect: Mapping[str, PrefectRun] = {}

    def unsettled(self) -> list[RunRecord]:
        """Runs of this node that Prefect must be asked about, and some of the line's.

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
        self._prefect = prefect
        containers = {c.name: c for c in self._site.runtime.containers()}
        wanted: set[str] = set()
        mendings: list[Mending] = []
        for run in runs:
            lease = self._lease_here(run)
            name = container_name(run.run_id, lease.attempt if lease is not None else run.attempt)
            wanted.add(name)
            try:
                situation = self._situation(run, prefect, containers.get(name), lease, starting)
                mendings += self._mend(run, name, reconcile(situation))
            except LedgerUnreachable:
                raise  # it would be the same for every other run, each after a long wait
            except HeadwayError as error:
                log.warning("run %s (%s) was not looked after: %s", run.name, run.run_id, error)
        settings = self._site.settings
        for gang_id in self._site.ledger.leases.release_untaken(
            settings.node, settings.lease_ttl_s
        ):
            log.warning("gang %s did not begin its part here: its lease is released", gang_id)
        self._guard_network()
        self._sweep(c for name, c in containers.items() if name not in wanted)
        self._sweep_secrets()
        try:
            self._release_data(containers.values())
            self._site.cache.sweep()
        except HeadwayError as error:
            log.warning("the cache was not swept: %s; tried again next round", error)
        return mendings

    def _guard_network(self) -> None:
        try:
            amiss = self._site.runtime.guard_network()
        except HeadwayError as error:
            amiss = f"containers may not be kept from this node now: {error}"
        if amiss and amiss != self._amiss:
            log.warning("%s", amiss)
        self._amiss = amiss

    def _mend(self, run: RunRecord, container: str, actions: Iterable[Action]) -> list[Mending]:
        """Carry *actions* out as far as they succeed; those that are left to the worker."""
        mendings = []
        for action in actions:
            if action in ON_PREFECT:
                mendings.append(Mending(run.run_id, action, self._exit_of(run.run_id)))
                continue
            if action is not Action.RENEW:
                log.warning("run %s (%s): %s", run.name, run.run_id, action.value)
            if not self._carried_out(action, run, container):
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

    def _situation(
        self,
        run: RunRecord,
        prefect: Mapping[str, PrefectRun],
        container: ContainerStatus | None,
        lease: Lease | None,
        starting: frozenset[str],
    ) -> Situation:
        seen = prefect.get(run.run_id, PrefectRun(PrefectView.MISSING))
        alive = live_flow(self._site.settings.state_dir, run.run_id) is not None
        return Situation(
            state=run.state,
            prefect=seen.view,
            flow_alive=alive or run.run_id in starting,
            container=container is not None,
            has_lease=lease is not None,
            flow_starts=seen.flow_starts,
            attempts_left=self._attempts_left(run),
            is_rank=run.gang_id is not None,
        )

    def _attempts_left(self, run: RunRecord) -> bool:
        return attempts_left(run.attempt, job_from_document(run.job).retries, run.preemptions)

    def _carried_out(self, action: Action, run: RunRecord, container: str) -> bool:
        try:
            try:
                self._carry_out(action, run, container)
            except LeaseLost as error:
                if self._site.ledger.runs.get(run.run_id).state is RunState.ENDED:
                    return True  # its flow let go of it in this moment
                # Nobody may hold what was promised to others: the container goes.
                log.warning("%s", error)
                remove_container(self._site, container, run.run_id)
        except HeadwayError as error:
            log.warning("%s of run %s: %s; tried again next round", action, run.run_id, error)
            return False
        return True

    def _carry_out(self, action: Action, run: RunRecord, container: str) -> None:
        ledger = self._site.ledger
        lease = ledger.leases.of_run(run.run_id)
        token = lease.token if lease is not None else ""
        match action:
            case Action.RENEW if lease is not None:
                ledger.leases.renew(lease.lease_id, token, self._site.settings.lease_ttl_s)
            case Action.STOP_CONTAINER:
                self._site.runtime.stop(container, job_from_document(run.job).stop_grace)
                remove_container(self._site, container, run.run_id)
            case Action.RELEASE:
                self._site.cache.release(run.run_id)
                ledger.leases.release(run.run_id)
            case Action.END_CANCELLED:
                seen = self._prefect.get(run.run_id)
                words = cancelled_by(seen.message) if seen is not None else DELETED
                exit_ = Exit(ExitKind.CANCELLED, None, words)
                ledger.runs.finish(run.run_id, exit_, Measurement())
            case Action.END_BROKEN:
                exit_ = Exit(ExitKind.INFRASTRUCTURE, None, "its flow broke: see the run's log")
                ledger.runs.finish(run.run_id, exit_, Measurement())
            case Action.END_INFRASTRUCTURE:
                ledger.runs.finish(run.run_id, _vanished(run, again=False), Measurement())
            case Action.REQUEUE:
                ledger.runs.requeue(run.run_id, _vanished(run, again=True))
                self._site.cache.release(run.run_id)  # the next attempt may be on another node
                ledger.leases.release(run.run_id)
            case Action.GIVE_BACK:
                self._site.cache.release(run.run_id)
                ledger.leases.give_back(run.run_id, token)
            case _:
                pass

    def abandon(self, node: str, prefect: Mapping[str, PrefectRun]) -> list[Mending]:
        """End or requeue what *node* has, whose machine does not come back; release all it holds.

        Only an operator can know that: a node that is merely silent may go on
        training. Those that go back to the line are offered to it again by the
        janitors of the nodes that are left.

        Args:
            node: The node. Its containers are taken for gone.
            prefect: What Prefect says of its runs; one that is missing here was deleted.

        Returns:
            What remains to be done on Prefect's side for each run, `RESCHEDULE` included.
        """
        self._prefect = prefect
        ledger, done = self._site.ledger, []
        for run in ledger.runs.on_node(node):
            situation = Situation(
                state=run.state,
                prefect=prefect.get(run.run_id, PrefectRun(PrefectView.MISSING)).view,
                flow_alive=False,
                container=False,
                has_lease=True,
                # Of a gang, only the run that leads it is tried again.
                attempts_left=run.gang_id is None and self._attempts_left(run),
                is_rank=run.gang_id is not None,
            )
            for action in reconcile(situation):
                if action in ON_PREFECT:
                    done.append(Mending(run.run_id, action, self._exit_of(run.run_id)))
                else:
                    self._carry_out(action, run, container_name(run.run_id, run.attempt))
        ledger.leases.release_node(node)
        return done

    def stop_container(self, run_id: str) -> None:
        """Stop the container of the run's attempt within its grace time; its flow does the rest."""
        run = self._site.ledger.runs.get(run_id)
        grace_s = job_from_document(run.job).stop_grace
        self._site.runtime.stop(container_name(run_id, run.attempt), grace_s)

    def _exit_of(self, run_id: str) -> Exit | None:
        return self._site.ledger.runs.get(run_id).exit

    def _release_data(self, containers: Iterable[ContainerStatus]) -> None:
        """Let go of the data sets of runs that need them here no more."""
        sets = self._site.ledger.staged.list(self._site.settings.node)
        users = {run_id for each in sets for run_id in each.run_ids}
        for run_id in users - {container.run_id for container in containers}:
            alive = live_flow(self._site.settings.state_dir, run_id) is not None
            if not alive and self._is_over_here(run_id):
                log.warning("run %s still held a data set here: released", run_id)
                self._site.cache.release(run_id)

    def _is_over_here(self, run_id: str) -> bool:
        """Has the run ended, or gone to another node? A waiting one may be granted here next."""
        try:
            run = self._site.ledger.runs.get(run_id)
        except RunUnknown:  # of a ledger before this one
            return True
        elsewhere = run.state in GRANTED and run.node != self._site.settings.node
        return elsewhere or run.state is RunState.ENDED

    def _sweep_secrets(self) -> None:
        """Remove the secrets of containers that are gone, whoever was killed before it did."""
        settings = self._site.settings
        folders = list(settings.secrets_dir.glob("headway-*"))
        containers = {each.name for each in self._site.runtime.containers()} if folders else set()
        for folder in folders:
            run_id = folder.name.removeprefix("headway-").rpartition("-")[0]
            # A flow lays them down before it creates the container.
            if folder.name not in containers and live_flow(settings.state_dir, run_id) is None:
                log.warning("secrets of %s were left: removed", folder.name)
                forget_secrets(settings, folder.name)

    def _sweep(self, strangers: Iterable[ContainerStatus]) -> None:
        """Remove containers that stand for no attempt the ledger knows."""
        for container in strangers:
            lease = self._site.ledger.leases.of_run(container.run_id)
            if lease is not None and (lease.node, lease.attempt) == (
                self._site.settings.node,
                container.attempt,
            ):
                continue  # it began after the runs were read, as a gang's rank does at any time
            log.warning("container %s belongs to no live attempt: removed", container.name)
            try:
                self._site.runtime.stop(container.name, 10.0)
                remove_container(self._site, container.name, container.run_id)
            except HeadwayError as error:
                log.warning("container %s: %s; tried again next round", container.name, error)


def _vanished(run: RunRecord, *, again: bool) -> Exit:
    then = (
        f"the run goes back to the line as attempt {run.attempt + 1}"
        if again
        else "it was tried as often as the job allows; submit it again"
    )
    return Exit(
        ExitKind.INFRASTRUCTURE,
        None,
        f"the container of attempt {run.attempt} is gone from node {run.node} "
        f"without an exit code; {then}",
    )
