"""Carries out what the janitor decided about one run: in the ledger, and on its container."""

import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from headway.ledger.records import RunRecord
from headway.model.attempt_record import Failures
from headway.model.job_text import stop_grace_s
from headway.model.lease import Fence, Lease
from headway.model.run import Exit, ExitKind, Measurement
from headway.node.flowlock import live_flow
from headway.node.stops import Stops
from headway.policy.conclude import restarted
from headway.policy.reconcile import FLOW_STARTS_WITHIN_S, MAX_FLOW_STARTS, Action
from headway.run.here import forget_checkpoint
from headway.site import Site
from headway.this_node import remove_container
from headway.units import format_duration

log = logging.getLogger(__name__)

_ON_LEASES = frozenset({Action.RELEASE, Action.GIVE_BACK})


@dataclass(frozen=True, slots=True)
class Case:
    """One run that the janitor looks after, as it was seen."""

    run: RunRecord
    lease: Lease | None
    """Its own on this node; of a waiting run, that of the attempt before."""
    container: str
    """Name of the container that the lease stands for, or the run's attempt."""
    flow_starts: int = 0
    """Flow processes that were started for it lately."""
    failures: Failures = field(default_factory=Failures)
    """Of its attempts so far."""
    restart: bool = False
    """Its container was started before its machine was."""

    @property
    def vanished(self) -> Exit:
        """How its attempt ends whose container is gone."""
        lost = f"the container of attempt {self.run.attempt} is gone from node {self.run.node}"
        exit_ = Exit(ExitKind.INFRASTRUCTURE, None, f"{lost} without an exit code")
        alone = self.run.nodes == 1 and self.run.gang_id is None
        return restarted(exit_, self.failures, alone=alone) if self.restart else exit_

    @property
    def fence(self) -> Fence:
        """The right to write for the run's attempt."""
        return self.run.fence(self.lease)


def same(before: RunRecord, now: RunRecord) -> bool:
    """Whether what was decided about a run still holds, by what the ledger has of it *now*."""
    return _standing(before) == _standing(now)


def _standing(run: RunRecord) -> tuple[object, ...]:
    return run.state, run.attempt, run.node, run.suspended_at, run.ended_at, run.told_end_at


class Mender:
    """Carries out instructions; to start a flow process is left to the worker."""

    def __init__(self, site: Site, on_stopped: Callable[[], None]) -> None:
        """On *site*'s node; *on_stopped* is called when a container has been stopped."""
        self._site = site
        self.stops = Stops(on_stopped)

    def carry_out(self, action: Action, case: Case) -> bool:
        """Do it; False when what follows has to wait for a container that is being stopped.

        Raises:
            HeadwayError: It was not done; `LeaseLost` when another attempt has the run now.
        """
        if action is Action.STOP_CONTAINER:
            stop = partial(_stop_and_remove, self._site, case.run, case.container)
            self.stops.begin(case.container, stop)
            return False
        if action is Action.END_FLOW:
            end_flow(self._site, case.run.run_id)
        elif action is Action.KILL_FLOW:
            end_flow(self._site, case.run.run_id, signal.SIGKILL)
        elif action in _ON_LEASES:
            self._change_lease(action, case)
        elif action is not Action.START_FLOW:
            self._change_run(action, case)
        return True

    def _change_lease(self, action: Action, case: Case) -> None:
        leases, run_id = self._site.ledger.leases, case.run.run_id
        self._site.cache.release(run_id)  # the next attempt may be on another node
        if action is Action.GIVE_BACK:
            leases.give_back(case.fence)
        elif case.lease is not None:
            leases.release(case.lease.fence)
        if case.run.exit is not None and case.run.exit.kind is ExitKind.OK:
            forget_checkpoint(self._site.settings, run_id)  # its flow died before it did

    def _change_run(self, action: Action, case: Case) -> None:
        runs, run, fence = self._site.ledger.runs, case.run, case.fence
        if action is Action.REQUEUE:
            then = f"the run goes back to the queue as attempt {run.attempt + 1}"
            runs.requeue(fence, _then(case.vanished, then))
        else:
            runs.finish(fence, _exit(case), Measurement())

    def stop(self, run: RunRecord, container: str) -> None:
        """Begin to stop a container of *run*, whose flow measures it then and removes it."""
        grace_s = stop_grace_s(run.job)
        self.stops.begin(container, partial(self._site.runtime.stop, container, grace_s))


def end_flow(site: Site, run_id: str, how: signal.Signals = signal.SIGTERM) -> None:
    """Ask the flow process of a run to leave, if there is one, or kill it."""
    pid = live_flow(site.settings.state_dir, run_id)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, how)


def _stop_and_remove(site: Site, run: RunRecord, container: str) -> None:
    site.runtime.stop(container, stop_grace_s(run.job))
    if live_flow(site.settings.state_dir, run.run_id) is None:  # else it measures and removes it
        remove_container(site, container, run.run_id)


def _exit(case: Case) -> Exit:
    """How a run ends that the site failed too often."""
    if case.flow_starts >= MAX_FLOW_STARTS:
        return _flows_died(case.flow_starts)
    then = "it was tried as often as the job allows; `headway retry` tries it again"
    return _then(case.vanished, then)


def _flows_died(starts: int) -> Exit:
    within = format_duration(FLOW_STARTS_WITHIN_S)
    return Exit(
        ExitKind.INFRASTRUCTURE,
        None,
        f"{starts} flow processes of it died within {within}, so it is not started again: the "
        "worker's log has why; `headway retry` tries it once more",
    )


def _then(exit_: Exit, then: str) -> Exit:
    """*exit_* of the site's making, with what follows; a restart says so itself."""
    if exit_.kind is not ExitKind.INFRASTRUCTURE:
        return exit_
    return replace(exit_, message=f"{exit_.message}; {then}")
