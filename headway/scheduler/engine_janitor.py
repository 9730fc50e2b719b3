"""What users want of runs that an engine has: compared with Prefect, as on a node.

The job itself is stopped by the follower, once the ledger has the run's end.
"""

from collections.abc import Collection, Mapping

from headway.ledger.records import RunRecord
from headway.model.run import GRANTED
from headway.node.janitor import DELETED_RUN
from headway.node.mending import Case, Mender, Mending, PrefectRun, same
from headway.policy.reconcile import Action, Container, FlowProcess
from headway.scheduler.queue_janitor import QueueJanitor
from headway.site import Site


class _EngineMender(Mender):
    def carry_out(self, action: Action, case: Case) -> bool:
        """As of a node; there is no container and no flow process here."""
        of_nodes = {Action.STOP_CONTAINER, Action.END_FLOW, Action.KILL_FLOW}
        return action in of_nodes or super().carry_out(action, case)


class EngineJanitor(QueueJanitor):
    """Mends what the follower of a pool answers for: what waits there, and what is under way."""

    def __init__(self, site: Site) -> None:
        """Of the pool of *site*."""
        super().__init__(site)
        self._mender = _EngineMender(site, lambda: None)

    def unsettled(self, called: Collection[str] = (), *, whole: bool = True) -> list[RunRecord]:
        """As of any queue; and what is under way."""
        under_way = self._site.ledger.engines.under_way(self._pool)
        found = super().unsettled(called, whole=whole)
        return [*(under_way if whole or called else ()), *found]

    def round(
        self,
        runs: list[RunRecord],
        prefect: Mapping[str, PrefectRun],
        starting: frozenset[str],  # noqa: ARG002 - nothing is started here
    ) -> list[Mending]:
        """As of a queue; what is under way is followed, whatever process does."""
        now, mendings = self._site.ledger.runs.of([run.run_id for run in runs]), list[Mending]()
        for run in runs:
            if run.run_id not in now or not same(run, now[run.run_id]):
                continue
            case = Case(run, None, run.container or "", prefect.get(run.run_id, DELETED_RUN))
            on = run.state in GRANTED
            flow = FlowProcess.ALIVE if on else FlowProcess.NONE
            container = Container.LIVE if on else Container.NONE
            mendings += self._look_after(case, flow, container, overdue=False)
        return mendings
