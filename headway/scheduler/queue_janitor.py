"""What the users of runs that no node has want: compared with Prefect, as on a node."""

from collections.abc import Collection, Mapping
from contextlib import suppress

from headway.errors import RunUnknown
from headway.ledger.records import RunRecord
from headway.node.janitor import A_ROUND, DELETED_RUN, Janitor
from headway.node.mending import Case, Mending, PrefectRun, same
from headway.node.told_ends import ToldEnds
from headway.policy.reconcile import Container, FlowProcess
from headway.run.here import container_name
from headway.site import Site


class QueueJanitor(Janitor):
    """Mends the runs of a pool that wait, or ended where no node answers for them."""

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
        now, mendings = self._site.ledger.runs.of([run.run_id for run in runs]), list[Mending]()
        for run in runs:
            if run.run_id in starting or run.run_id not in now or not same(run, now[run.run_id]):
                continue
            said = prefect.get(run.run_id, DELETED_RUN)
            case = Case(run, None, container_name(run.run_id, run.attempt), said)
            mendings += self._look_after(case, FlowProcess.NONE, Container.NONE, overdue=False)
        return mendings
