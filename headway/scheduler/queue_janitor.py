"""What the users of runs that no node has want: compared with Prefect, as on a node."""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from headway.errors import LeaseLost, RunUnknown
from headway.ledger.records import RunRecord
from headway.model.attempt_record import Failures
from headway.model.job_text import kept_job
from headway.model.run import Exit, ExitKind
from headway.node.janitor import A_ROUND, DELETED_RUN, Janitor
from headway.node.mending import Case, Mending, PrefectRun, same
from headway.node.sweep import trying
from headway.node.told_ends import ToldEnds
from headway.policy.conclude import AttemptEnd, Ended, conclude
from headway.policy.guard import GuardTimes
from headway.policy.reconcile import Container, FlowProcess
from headway.run.here import container_name
from headway.site import Site

log = logging.getLogger(__name__)


class QueueJanitor(Janitor):
    """Mends what no node answers for: waiting runs, ends on silent nodes, gangs without a head."""

    def __init__(self, site: Site) -> None:
        """Of the pool of *site*'s node."""
        super().__init__(site)
        self._pool = site.settings.pool
        self._turn = ""
        self._told_ends = ToldEnds(site, pool=self._pool)

    def unsettled(self, called: Collection[str] = (), *, whole: bool = True) -> list[RunRecord]:
        """Some of the queue, the ends that no node tells, and those of *called* that no node has.

        A long queue is asked about in turns, and comes last: its runs cost nothing meanwhile, and
        a cancelled one that comes to its turn is not started in any case.
        """
        runs, first = self._site.ledger.runs, list[RunRecord]()
        for run_id in sorted(called):
            with suppress(RunUnknown):
                first.append(runs.get(run_id))
        found = [run for run in first if run.pool == self._pool and self._is_nobodys(run)]
        found += self._untold(pool=self._pool)
        if whole:
            waiting = runs.waiting_page(self._pool, self._turn, A_ROUND)
            self._turn = waiting[-1].run_id if len(waiting) == A_ROUND else ""
            found += [*self._told_ends.page(), *waiting]
        return list({run.run_id: run for run in found[::-1]}.values())[::-1]

    def round(
        self,
        runs: list[RunRecord],
        prefect: Mapping[str, PrefectRun],
        starting: frozenset[str],
    ) -> list[Mending]:
        """As of a node's janitor; no process and no container is looked at."""
        with trying("leases of gangs"):
            _release_untaken(self._site)
        with trying("gangs whose leader is lost"):
            _conclude_lost_gangs(self._site)
        now, mendings = self._site.ledger.runs.of([run.run_id for run in runs]), list[Mending]()
        for run in runs:
            if run.run_id in starting or run.run_id not in now or not same(run, now[run.run_id]):
                continue
            said = prefect.get(run.run_id, DELETED_RUN)
            case = Case(run, None, container_name(run.run_id, run.attempt), said)
            mendings += self._look_after(case, FlowProcess.NONE, Container.NONE, overdue=False)
        return mendings


def _release_untaken(site: Site) -> None:
    settings = site.settings
    for gang_id in site.ledger.leases.release_untaken(settings.pool, settings.lease_ttl_s):
        log.warning("gang %s did not begin a part of it: the lease is released", gang_id)


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
