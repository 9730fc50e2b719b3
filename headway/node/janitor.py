"""The node's janitor: compares ledger, Prefect, processes and containers, and mends.

What is to be done about one run is decided by `policy.reconcile`; here the
four sides are read, and the instructions handed to `node.mending`. Whatever
fails is tried again with the next round.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from headway.clock import NowAndThen, booted_at
from headway.errors import (
    HeadwayError,
    LeaseLost,
    LedgerUnreachable,
    RunUnknown,
)
from headway.ledger.records import RunRecord
from headway.model.attempt_record import Failures
from headway.model.engine import ENGINES
from headway.model.job_text import kept_job
from headway.model.lease import Lease
from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind, RunState
from headway.node.flowlock import live_flow
from headway.node.frozen import FrozenFlows
from headway.node.mending import Case, Mender, Mending, PrefectRun, same
from headway.node.sweep import sweep
from headway.node.told_ends import ToldEnds
from headway.policy.demand import runs_again
from headway.policy.reconcile import (
    FLOW_STARTS_WITHIN_S,
    ON_PREFECT,
    Action,
    Container,
    FlowProcess,
    Situation,
    reconcile,
)
from headway.run.here import container_name
from headway.runtime.port import ContainerState, ContainerStatus
from headway.site import Site
from headway.this_node import note_ports

log = logging.getLogger(__name__)

DELETED_RUN = PrefectRun(PrefectView.MISSING)
A_ROUND = 200
"""Of the ends that Prefect has not heard of, and of the runs that wait, so many are looked at."""
_SWEEP_EVERY_S = 30.0
"""Of a node on which nothing runs."""
_SILENT = frozenset({Action.NOTE_TOLD, Action.STOP_CONTAINER})
"""Not worth a line of the log each round."""


class Janitor:
    """Mends this node."""

    def __init__(self, site: Site, wake: Callable[[], None] = lambda: None) -> None:
        """Mend *site*'s node; *wake* is called, from any thread, when a round would find news."""
        self._site = site
        self._mender = Mender(site, wake)
        self._frozen = FrozenFlows(site.clock)
        self._turn_of_ends = ""
        self._told_ends = ToldEnds(site, node=site.settings.node)
        self._amiss: str | None = None
        self._untaken = frozenset[str]()
        self._quiet_sweep = NowAndThen(site.clock, _SWEEP_EVERY_S)

    def unsettled(self, called: Collection[str] = (), *, whole: bool = True) -> list[RunRecord]:
        """Runs of this node that Prefect must be asked about, and *called*.

        The ends that Prefect has not heard of are asked about in turns, and now and then those
        that it has: not in a round that is not *whole*.
        """
        ledger, node = self._site.ledger, self._site.settings.node
        open_runs = ledger.runs.on_node(node) + self._untold(node=node)
        open_runs += self._told_ends.page() if whole else []
        known = {run.run_id for run in open_runs}
        # Read after the runs: a grant that the worker has not seen yet is among these.
        leases = [lease for lease in ledger.leases.live(node) if lease.gang_rank == 0]
        self._untaken = frozenset(lease.run_id for lease in leases if lease.start_by is not None)
        left = {lease.run_id for lease in leases}
        left |= {container.run_id for container in self._site.runtime.containers()}
        for run_id in sorted(left.union(called) - known):
            with suppress(RunUnknown):  # of a ledger before this one; its container is swept
                open_runs.append(ledger.runs.get(run_id))
        ours = [run for run in open_runs if run.run_id in known or self._is_ours(run)]
        return sorted(ours, key=lambda run: _in_line(run) and run.run_id not in called)

    def _untold(self, *, node: str = "", pool: str = "") -> list[RunRecord]:
        """Ends that Prefect has not heard of: see `RunReads.untold`; each round the next ones."""
        found = self._site.ledger.runs.untold(node, pool, self._turn_of_ends, A_ROUND)
        self._turn_of_ends = found[-1].run_id if len(found) == A_ROUND else ""
        return found

    def _is_ours(self, run: RunRecord) -> bool:
        """Whether this node may decide about a run that it was pointed to.

        What another node has is that node's, also while it cleans up behind the end. A
        container that is here all the same belongs to no live attempt, and is swept.
        """
        if run.runtime in ENGINES and run.state is not RunState.ENDED:
            return False  # its follower's
        if run.node == self._site.settings.node:
            return True
        if run.pool != self._site.settings.pool:
            return False
        return self._is_nobodys(run)

    def _is_nobodys(self, run: RunRecord) -> bool:
        """Whether no node has the run, nor cleans up behind it."""
        settled = (
            run.told_end_at is not None and self._site.ledger.leases.of_run(run.run_id) is None
        )
        return run.state is RunState.WAITING or run.node is None or settled

    def round(
        self,
        runs: list[RunRecord],
        prefect: Mapping[str, PrefectRun],
        starting: frozenset[str],
    ) -> list[Mending]:
        """One round over *runs*; returns what remains to be written to Prefect.

        Args:
            runs: From `unsettled`, read *before* Prefect was asked. What the ledger
                says otherwise by now is left to the next round.
            prefect: What Prefect says; a run that is missing here was deleted.
            starting: Runs whose flow process this worker is starting right now.
        """
        # In this order: of a flow process that has ended every container is seen.
        alive = {run.run_id: live_flow(self._site.settings.state_dir, run.run_id) for run in runs}
        self._frozen.kill(pid for pid in alive.values() if pid is not None)
        containers = {c.name: c for c in self._site.runtime.containers()}
        compared = self._compare(runs, prefect, starting, alive, containers) if runs else None
        mendings, wanted = compared or ([], set())
        self._guard_network()
        if runs or containers or self._quiet_sweep.is_due():
            without_run = [each for name, each in containers.items() if name not in wanted]
            sweep(self._site, containers.values(), without_run)
        return mendings

    def _compare(
        self,
        runs: list[RunRecord],
        prefect: Mapping[str, PrefectRun],
        starting: frozenset[str],
        alive: Mapping[str, int | None],
        containers: Mapping[str, ContainerStatus],
    ) -> tuple[list[Mending], set[str]]:
        """What remains to be written to Prefect, and the containers that stand for an attempt."""
        ledger, node = self._site.ledger, self._site.settings.node
        ids = [run.run_id for run in runs]
        starts = ledger.flow_starts.lately(ids, FLOW_STARTS_WITHIN_S)
        now, failed = ledger.runs.of(ids), ledger.attempts.failures(ids)
        booted = booted_at(self._site.clock)
        leases = {each.run_id: each for each in ledger.leases.live(node) if each.gang_rank == 0}
        overdue = {lease.run_id for lease in ledger.leases.overdue(node)} if self._untaken else ()
        # Nobody starts those that have ended.
        ended = {run.run_id for run in runs if run.state is RunState.ENDED}
        starting = (starting | self._untaken) - ended
        wanted: set[str] = set()
        mendings: list[Mending] = []
        for run in runs:
            lease = _lease_of(run, leases.get(run.run_id))
            name = container_name(run.run_id, lease.attempt if lease is not None else run.attempt)
            wanted.add(name)
            if run.run_id not in now or not same(run, now[run.run_id]):
                continue
            said = prefect.get(run.run_id, DELETED_RUN)
            failures = failed.get(run.run_id, Failures())
            restart = run.started_at is not None and run.started_at < booted
            case = Case(run, lease, name, said, starts.get(run.run_id, 0), failures, restart)
            container, late = _state_of(containers.get(name)), run.run_id in overdue
            flow = _flow(alive[run.run_id], starting=run.run_id in starting)
            mendings += self._look_after(case, flow, container, overdue=late)
        return mendings, wanted

    def _look_after(
        self, case: Case, flow: FlowProcess, container: Container, *, overdue: bool
    ) -> list[Mending]:
        try:
            seen = replace(_situation(case), flow=flow, container=container, overdue=overdue)
            return self._mend(case, reconcile(seen))
        except LedgerUnreachable:
            raise  # it would be the same for every other run, each after a long wait
        except Exception:  # a supervisor's loop: one run must not keep it from the others
            log.exception("run %s (%s) was not looked after", case.run.name, case.run.run_id)
            return []

    def _guard_network(self) -> None:
        try:
            amiss = self._site.runtime.guard_network()
        except HeadwayError as error:
            amiss = f"containers may not be kept from this node now: {error}"
        if amiss != self._amiss:
            note_ports(self._site)
            if amiss:
                log.warning("%s", amiss)
        self._amiss = amiss

    def _mend(self, case: Case, actions: Iterable[Action]) -> list[Mending]:
        """Carry *actions* out as far as they succeed; those that are left for Prefect."""
        mendings, run = [], case.run
        for action in actions:
            try:
                if action not in _SILENT:
                    log.warning("run %s (%s): %s", run.name, run.run_id, action.value)
                if action in ON_PREFECT:
                    now = self._site.ledger.runs.get(run.run_id)
                    mendings.append(Mending(now, action, case.prefect))
                elif not self._mender.carry_out(action, case):
                    break  # the instructions build on each other
            except LedgerUnreachable:
                raise
            except LeaseLost as error:
                log.info("%s of run %s: %s", action.value, run.run_id, error)
                break  # it has moved on: the next round sees where it is
            except HeadwayError as error:
                log.warning(
                    "%s of run %s: %s; tried again next round", action.value, run.run_id, error
                )
                break
        return mendings

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
        leases = {each.run_id: each for each in ledger.leases.live(node) if each.gang_rank == 0}
        runs = ledger.runs.on_node(node)
        failed = ledger.attempts.failures([run.run_id for run in runs])
        for run in runs:
            name = container_name(run.run_id, run.attempt)
            said = prefect.get(run.run_id, DELETED_RUN)
            failures = failed.get(run.run_id, Failures())
            case = Case(run, leases.get(run.run_id), name, said, failures=failures)
            seen = _situation(case)
            # Of a gang, only the run that leads it is tried again.
            seen = replace(seen, attempts_left=not seen.is_rank and seen.attempts_left)
            done += self._mend(case, reconcile(seen))
        ledger.leases.release_node(node)
        return done

    def stop_container(self, run_id: str) -> None:
        """Begin to stop the container of the run's attempt; its flow does the rest."""
        run = self._site.ledger.runs.get(run_id)
        self._mender.stop(run, container_name(run_id, run.attempt))

    def wait_for_stops(self) -> None:
        """Wait until the containers that are being stopped have stopped."""
        self._mender.stops.wait()


def _flow(pid: int | None, *, starting: bool) -> FlowProcess:
    if pid is not None:
        return FlowProcess.ALIVE
    return FlowProcess.STARTING if starting else FlowProcess.NONE


def _in_line(run: RunRecord) -> bool:
    return run.state is RunState.WAITING


def _lease_of(run: RunRecord, lease: Lease | None) -> Lease | None:
    """The run's *lease* here. Of a waiting run only that of an attempt before.

    A waiting run that has a lease of its own attempt was claimed since it was read.
    """
    if lease is not None and run.state is RunState.WAITING and lease.attempt >= run.attempt:
        return None
    return lease


def _state_of(container: ContainerStatus | None) -> Container:
    if container is None:
        return Container.NONE
    return Container.EXITED if container.state is ContainerState.EXITED else Container.LIVE


def _situation(case: Case) -> Situation:
    """What ledger and Prefect say of a run."""
    run, job = case.run, kept_job(case.run.job)
    return Situation(
        state=run.state,
        prefect=case.prefect.view,
        has_lease=case.lease is not None,
        flow_starts=case.flow_starts,
        attempts_left=job is not None and runs_again(case.vanished, job.retries, case.failures),
        is_rank=run.gang_id is not None,
        leads_gang=job is not None and run.nodes > 1 and run.gang_id is None,
        exit_kind=run.exit.kind if run.exit is not None else ExitKind.OK,
        told=run.told_end_at is not None,
        suspended=run.suspended_at is not None,
    )
