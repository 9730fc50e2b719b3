"""The node's janitor: compares ledger, processes and containers, and mends.

What is to be done about one run is decided by `policy.reconcile`; here the
three sides are read, and the instructions handed to `node.mending`. Whatever
fails is tried again with the next round.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from headway.clock import NowAndThen, booted_at
from headway.errors import (
    HeadwayError,
    LeaseLost,
    LedgerUnreachable,
)
from headway.ledger.records import RunRecord
from headway.model.attempt_record import Failures
from headway.model.engine import ENGINES
from headway.model.job_text import kept_job
from headway.model.lease import Lease
from headway.model.run import ExitKind, RunState
from headway.node.flowlock import live_flow
from headway.node.frozen import FrozenFlows
from headway.node.mending import Case, Mender, same
from headway.node.sweep import sweep
from headway.policy.demand import runs_again
from headway.policy.reconcile import (
    FLOW_STARTS_WITHIN_S,
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

_SWEEP_EVERY_S = 30.0
"""Of a node on which nothing runs."""


class Done(NamedTuple):
    """What was done about a run; `START_FLOW` is left to the worker."""

    run: RunRecord
    action: Action


class Janitor:
    """Mends this node."""

    def __init__(self, site: Site, wake: Callable[[], None] = lambda: None) -> None:
        """Mend *site*'s node; *wake* is called, from any thread, when a round would find news."""
        self._site = site
        self._mender = Mender(site, wake)
        self._frozen = FrozenFlows(site.clock)
        self._amiss: str | None = None
        self._leases = dict[str, Lease]()
        self._quiet_sweep = NowAndThen(site.clock, _SWEEP_EVERY_S)

    def unsettled(self, called: Collection[str] = ()) -> list[RunRecord]:
        """Runs that this node has, or has something left of; and those of *called*."""
        ledger, node = self._site.ledger, self._site.settings.node
        open_runs = ledger.runs.on_node(node)
        known = {run.run_id for run in open_runs}
        # Read after the runs: a grant that the worker has not seen yet is among these.
        own = (lease for lease in ledger.leases.live(node) if lease.gang_rank == 0)
        self._leases = {lease.run_id: lease for lease in own}
        containers = {container.run_id for container in self._site.runtime.containers()}
        left = containers | self._leases.keys()
        others = ledger.runs.of(sorted(left.union(called) - known))
        return [*open_runs, *(run for run in others.values() if self._is_ours(run))]

    def _is_ours(self, run: RunRecord) -> bool:
        """Whether this node may decide about a run that it was pointed to.

        What another node has is that node's, also while it cleans up behind the end. A
        container that is here all the same belongs to no live attempt, and is swept.
        """
        if run.runtime in ENGINES and run.state is not RunState.ENDED:
            return False  # its follower's
        return run.node in {None, self._site.settings.node} or run.state is RunState.WAITING

    def round(self, runs: list[RunRecord], starting: frozenset[str]) -> list[Done]:
        """One round over *runs*; returns what was done.

        Args:
            runs: From `unsettled`. What the ledger says otherwise by now is left to the next round.
            starting: Runs whose flow process this worker is starting right now.
        """
        # In this order: of a flow process that has ended every container is seen.
        alive = {run.run_id: live_flow(self._site.settings.state_dir, run.run_id) for run in runs}
        self._frozen.kill(pid for pid in alive.values() if pid is not None)
        containers = {c.name: c for c in self._site.runtime.containers()}
        compared = self._compare(runs, starting, alive, containers) if runs else None
        done, wanted = compared or ([], set())
        self._guard_network()
        if runs or containers or self._quiet_sweep.is_due():
            without_run = [each for name, each in containers.items() if name not in wanted]
            sweep(self._site, containers.values(), without_run)
        return done

    def _compare(
        self,
        runs: list[RunRecord],
        starting: frozenset[str],
        alive: Mapping[str, int | None],
        containers: Mapping[str, ContainerStatus],
    ) -> tuple[list[Done], set[str]]:
        """What was done, and the containers that stand for an attempt."""
        ledger, node = self._site.ledger, self._site.settings.node
        ids = [run.run_id for run in runs]
        starts = ledger.flow_starts.lately(ids, FLOW_STARTS_WITHIN_S)
        now, failed = ledger.runs.of(ids), ledger.attempts.failures(ids)
        booted = booted_at(self._site.clock)
        untaken = {key for key, lease in self._leases.items() if lease.start_by is not None}
        overdue = {lease.run_id for lease in ledger.leases.overdue(node)} if untaken else ()
        # Nobody starts those that have ended.
        ended = {run.run_id for run in runs if run.state is RunState.ENDED}
        starting = (starting | untaken) - ended
        wanted: set[str] = set()
        done: list[Done] = []
        for run in runs:
            lease = _lease_of(run, self._leases.get(run.run_id))
            name = container_name(run.run_id, lease.attempt if lease is not None else run.attempt)
            wanted.add(name)
            if run.run_id not in now or not same(run, now[run.run_id]):
                continue
            failures = failed.get(run.run_id, Failures())
            restart = run.started_at is not None and run.started_at < booted
            case = Case(run, lease, name, starts.get(run.run_id, 0), failures, restart)
            container, late = _state_of(containers.get(name)), run.run_id in overdue
            flow = _flow(alive[run.run_id], starting=run.run_id in starting)
            done += self._look_after(case, flow, container, overdue=late)
        return done, wanted

    def _look_after(
        self, case: Case, flow: FlowProcess, container: Container, *, overdue: bool
    ) -> list[Done]:
        try:
            seen = replace(_situation(case), flow=flow, container=container, overdue=overdue)
            return self._mend(case, reconcile(seen))
        except LedgerUnreachable:
            raise  # it would be the same for every other run, each after a long wait
        except Exception:  # a supervisor's loop: one run must not keep it from the others
            log.exception(
                "run %s (%s) is left as it is until the next round", case.run.name, case.run.run_id
            )
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

    def _mend(self, case: Case, actions: Iterable[Action]) -> list[Done]:
        """Carry *actions* out as far as they succeed."""
        done, run = list[Done](), case.run
        for action in actions:
            try:
                if action is not Action.STOP_CONTAINER:  # which is said once
                    log.warning("run %s (%s): %s", run.name, run.run_id, action.value)
                if not self._mender.carry_out(action, case):
                    break  # the instructions build on each other
                done.append(Done(run, action))
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
        return done

    def abandon(self, node: str) -> None:
        """End or requeue what *node* has, whose machine does not come back; release all it holds.

        Only an operator can know that: a node that is merely silent may go on training. Its
        containers are taken for gone.
        """
        ledger = self._site.ledger
        leases = {each.run_id: each for each in ledger.leases.live(node) if each.gang_rank == 0}
        runs = ledger.runs.on_node(node)
        failed = ledger.attempts.failures([run.run_id for run in runs])
        for run in runs:
            name = container_name(run.run_id, run.attempt)
            failures = failed.get(run.run_id, Failures())
            seen = _situation(case := Case(run, leases.get(run.run_id), name, failures=failures))
            # Of a gang, only the run that leads it is tried again.
            seen = replace(seen, attempts_left=not seen.is_rank and seen.attempts_left)
            self._mend(case, reconcile(seen))
        ledger.leases.release_node(node)

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
    """What the ledger says of a run."""
    run, job = case.run, kept_job(case.run.job)
    return Situation(
        state=run.state,
        has_lease=case.lease is not None,
        flow_starts=case.flow_starts,
        attempts_left=job is not None and runs_again(case.vanished, job.retries, case.failures),
        is_rank=run.gang_id is not None,
        exit_kind=run.exit.kind if run.exit is not None else ExitKind.OK,
        suspended=run.suspended_at is not None,
    )
