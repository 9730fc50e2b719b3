"""What ledger and Prefect say of the runs of a pool: compared, and made to agree.

What is to be done about one run is decided by `policy.agree`. What changes for a run that a node
has is written to the ledger, and the node called: it stops what is not wanted any more.
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from headway.errors import HeadwayError, LeaseLost, LedgerUnreachable
from headway.ledger.records import RunRecord
from headway.model.attempt_record import Failures
from headway.model.engine import ENGINES
from headway.model.job_text import kept_job
from headway.model.prefect_view import PrefectView
from headway.model.run import (
    CANCELLED_BY_USER,
    DELETED,
    GRANTED,
    Exit,
    ExitKind,
    Measurement,
    cancelled_by,
)
from headway.node.mending import same
from headway.node.sweep import trying
from headway.policy.agree import ON_PREFECT, TO_BE_SUSPENDED, Change, Said, agree
from headway.policy.conclude import AttemptEnd, Ended, conclude
from headway.policy.guard import GuardTimes
from headway.scheduler.told_ends import ToldEnds
from headway.site import Site

log = logging.getLogger(__name__)

_A_ROUND = 200
"""Of the ends that Prefect has not heard of, and of the runs that wait, so many are looked at."""
_TELLS_ITSELF = timedelta(seconds=5)
"""A flow process draws and reports behind its clean-up, and then says itself how its run ended; a
pass that grants says so beside the start."""
SUSPENDED = Exit(
    ExitKind.PREEMPTED, None, "suspended by its user; it goes on from its checkpoint when resumed"
)


@dataclass(frozen=True, slots=True)
class PrefectRun:
    """What Prefect says of one run."""

    view: PrefectView
    message: str = ""
    """Of its state."""
    state_id: str = ""
    """Every change of its state has another one."""
    retried_at: datetime | None = None
    """When its user pressed Retry, if that is its state."""


_DELETED_RUN = PrefectRun(PrefectView.MISSING)


@dataclass(frozen=True, slots=True)
class Mending:
    """A change that was made in the ledger, or of Prefect's state that is still to be made."""

    run: RunRecord
    """The ledger has it so, or the change must not be made."""
    change: Change
    prefect: PrefectRun
    """Prefect says so, or the change must not be made."""


class Reconciler:
    """Makes ledger and Prefect agree about the runs of one pool, and of those that nobody leads."""

    def __init__(self, site: Site) -> None:
        """Of the pool of *site*."""
        self._site, self._pools = site, [site.settings.pool]
        self._turn = self._turn_of_ends = ""
        self._told_ends = ToldEnds(site)

    def unsettled(self, called: Collection[str] = (), *, whole: bool = True) -> list[RunRecord]:
        """Runs of which Prefect must be asked: *called*, and ends that it has not heard of.

        In a *whole* round gangs that have lost a part are seen to first; those that are under way
        are asked about, too, and parts of what costs nothing meanwhile, in turns: ends that it has
        heard of, and, last, of the queue.
        """
        runs, own = self._site.ledger.runs, self._site.settings.pool
        if whole:
            self._pools = [own, *self._site.ledger.leaders.unled(own)]
        found = [run for run in runs.of(sorted(called)).values() if run.pool in self._pools]
        ends = runs.untold(self._pools, self._turn_of_ends, _A_ROUND)
        self._turn_of_ends = ends[-1].run_id if len(ends) == _A_ROUND else ""
        found += ends
        if whole:
            with trying("leases of gangs"):
                _release_untaken(self._site)
            with trying("gangs whose leader is lost"):
                _conclude_lost_gangs(self._site)
            waiting = runs.waiting_page(self._pools, self._turn, _A_ROUND)
            self._turn = waiting[-1].run_id if len(waiting) == _A_ROUND else ""
            found += [*runs.under_way(self._pools), *self._told_ends.page(self._pools), *waiting]
        return list({run.run_id: run for run in found}.values())

    def round(self, runs: list[RunRecord], prefect: Mapping[str, PrefectRun]) -> list[Mending]:
        """What was changed in the ledger about *runs*, and what is to be changed in Prefect.

        Args:
            runs: From `unsettled`, read *before* Prefect was asked. What the ledger
                says otherwise by now is left to the next round.
            prefect: What Prefect says; a run that is missing here was deleted.
        """
        if not runs:
            return []
        ledger, ids = self._site.ledger, [run.run_id for run in runs]
        now, held = ledger.runs.of(ids), ledger.leases.held(ids)
        young_since = ledger.now() - _TELLS_ITSELF
        mendings = list[Mending]()
        for run in runs:
            if run.run_id not in now or not same(run, now[run.run_id]):
                continue
            seen = prefect.get(run.run_id, _DELETED_RUN)
            try:
                at = run.ended_at or run.claimed_at
                young = at is not None and at > young_since
                said = self._said(run, seen, held=run.run_id in held, young=young)
                mendings += self._agree(run, seen, agree(said))
            except LedgerUnreachable:
                raise  # it would be the same for every other run, each after a long wait
            except Exception:  # a supervisor's loop: one run must not keep it from the others
                log.exception(
                    "run %s (%s) is left as it is until the next round", run.name, run.run_id
                )
        return mendings

    def _said(self, run: RunRecord, seen: PrefectRun, *, held: bool, young: bool) -> Said:
        begun = run.claimed_at is not None and run.runtime not in ENGINES
        pauses = seen.view in TO_BE_SUSPENDED
        return Said(
            state=run.state,
            prefect=seen.view,
            held=held,
            young=young and begun,
            program_over=pauses and self._is_program_over(run),
            is_rank=run.gang_id is not None,
            leads_gang=pauses and run.gang_id is None and _nodes(run) > 1,
            exit_kind=run.exit.kind if run.exit is not None else ExitKind.OK,
            told=run.told_end_at is not None or _retried(run, seen),
            suspended=run.suspended_at is not None,
        )

    def _is_program_over(self, run: RunRecord) -> bool:
        return any(
            (step.name, step.attempt) == ("train", run.attempt) and step.ended_at is not None
            for step in self._site.ledger.steps.of_run(run.run_id)
        )

    def _agree(
        self, run: RunRecord, seen: PrefectRun, changes: Collection[Change]
    ) -> list[Mending]:
        """Make *changes* as far as they succeed; what was made, and what is left for Prefect."""
        done = list[Mending]()
        for change in changes:
            try:
                if change is not Change.NOTE_TOLD:
                    log.warning("run %s (%s): %s", run.name, run.run_id, change.value)
                if change in ON_PREFECT:
                    done.append(Mending(self._site.ledger.runs.get(run.run_id), change, seen))
                else:
                    self._change(change, run, seen)
                    done.append(Mending(run, change, seen))
            except LedgerUnreachable:
                raise
            except LeaseLost as error:
                log.info("%s of run %s: %s", change.value, run.run_id, error)
                break  # it has moved on: the next round sees where it is
            except HeadwayError as error:
                log.warning("%s of run %s: %s; tried again", change.value, run.run_id, error)
                break
        return done

    def _change(self, change: Change, run: RunRecord, seen: PrefectRun) -> None:
        """Change the run in the ledger, and call the node that has it."""
        ledger = self._site.ledger
        match change:
            case Change.NOTE_TOLD:
                ledger.runs.told(run.run_id, run.attempt)
                return
            case Change.RESUME:
                ledger.runs.resume(run.run_id)
            case Change.RETRY:
                ledger.runs.retry(run.run_id, run.attempt)
            case Change.SUSPEND:
                ledger.runs.suspend(run.fence(ledger.leases.of_run(run.run_id)), SUSPENDED)
            case _:
                fence = run.fence(ledger.leases.of_run(run.run_id))
                ledger.runs.finish(
                    fence, _exit(seen, "" if seen.message else self._canceller(run)), Measurement()
                )
        if run.state in GRANTED and run.node is not None:
            ledger.calls.send([run.node], run.run_id)

    def _canceller(self, run: RunRecord) -> str:
        """Whom the gateway has noted as ending the run; empty if nobody.

        Of a run that waits Prefect says so only behind a state of its own, which names nobody.
        """
        newest = self._site.ledger.audit_log.newest(1, subject=run.run_id)
        return next((each.actor for each in newest if each.act == "run.cancel"), "")


def _retried(run: RunRecord, seen: PrefectRun) -> bool:
    """Whether its user wants a run once more whose end Prefect was not seen to know.

    A Retry from before its end was for the attempt that has ended.
    """
    at, ended_at = seen.retried_at, run.ended_at
    return at is not None and ended_at is not None and at > ended_at


def _nodes(run: RunRecord) -> int:
    return run.nodes if kept_job(run.job) is not None else 1


def _exit(seen: PrefectRun, canceller: str) -> Exit:
    """How a run ends of which Prefect says what it says; *canceller* where that names nobody."""
    match seen.view:
        case PrefectView.FAILED:
            said = f" ({seen.message[:200]})" if seen.message else ""
            why = f"its flow broke{said}: see the run's log"
            return Exit(ExitKind.INFRASTRUCTURE, None, why)
        case PrefectView.MISSING:
            return Exit(ExitKind.CANCELLED, None, DELETED)
        case PrefectView.COMPLETED:
            why = "somebody called it completed in Prefect before its program had ended"
            return Exit(ExitKind.CANCELLED, None, why)
        case _:
            noted = f"{CANCELLED_BY_USER}{canceller} (gateway)" if canceller else ""
            return Exit(ExitKind.CANCELLED, None, cancelled_by(seen.message or noted))


def _release_untaken(site: Site) -> None:
    settings = site.settings
    for gang_id in site.ledger.leases.release_untaken(settings.pool, settings.lease_ttl_s):
        log.warning("a part of gang %s was never started: its lease is released", gang_id)


def _conclude_lost_gangs(site: Site) -> None:
    """Start gangs anew, or end them where they have no retry left, whose leader's node is lost.

    Of a run on one node only an operator can say that its node does not come back: it may still
    train. A gang does not: its other parts have ended.
    """
    ledger, margin_s = site.ledger, GuardTimes(site.settings.lease_ttl_s).margin_s
    for lease in ledger.leases.lost_heads(site.settings.pool, margin_s):
        run = ledger.runs.get(lease.run_id)
        job = kept_job(run.job)
        exit_ = Exit(
            ExitKind.INFRASTRUCTURE,
            None,
            f"node {lease.node}, where rank 0 ran, is lost: its lease expired at "
            f"{lease.expires_at:%H:%M:%S} UTC",
        )
        before = ledger.attempts.failures([run.run_id]).get(run.run_id, Failures())
        found = conclude(AttemptEnd(exit_, job.retries if job else 0, before))
        again, exit_ = not isinstance(found, Ended), found.exit_
        if again:
            exit_ = replace(exit_, message=f"{exit_.message}; all ranks start anew together")
        log.warning("run %s (%s): %s", run.name, run.run_id, exit_.message)
        with suppress(LeaseLost):  # it moved on
            ledger.runs.conclude_lost(lease.fence, exit_, margin_s, again=again)
