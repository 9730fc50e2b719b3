"""What Prefect offers, put into the ledger as runs that wait, with what each will need."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from headway.errors import ImpossibleDemand, InvalidInput, LeaseLost
from headway.forecast import Forecaster
from headway.ledger.records import RunRecord
from headway.model.job import TrainingJob
from headway.model.job_text import job_from_document
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.prefect.client import FLOW
from headway.runtime.errors import CeilingUnsafe
from headway.scheduler.limits import Gates
from headway.site import Site
from headway.this_node import OPERATORS_TEAM, os_user

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Offer:
    """A scheduled flow run as Prefect offers it."""

    run_id: str
    name: str
    document: Mapping[str, Any] | None
    """The job; None for a flow that is no training run."""
    submitted_at: datetime
    queue: str = ""
    key: str = ""
    """Under which it was made in Prefect."""
    member: tuple[str, int] | None = None
    """The array that it was made for as a member, and which one; see `model.array.member_of`."""
    flow: str = FLOW


@dataclass(frozen=True, slots=True)
class Taken:
    """What becomes of offers that are not put into the queue."""

    flows: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Runs that train nothing: the node that each is to start on, and its flow."""
    refused: dict[str, str] = field(default_factory=dict)
    """Runs that the ledger does not know and that can never run, with the reason."""


class Intake:
    """Takes in what one pass of one pool is offered."""

    def __init__(self, site: Site, pool: str, gates: Gates) -> None:
        """For runs of *pool*, whose work queues have the priorities of *gates*."""
        self._site = site
        self._pool = pool
        self._gates = gates
        self._forecaster = Forecaster(site)
        self.called: set[str] = set()
        """Runs that Prefect offers although they have ended or are suspended: what their users
        want, and what Prefect is to be told, is the janitor's to find out."""

    def take_in(self, offers: Iterable[Offer]) -> Taken:
        """Put new runs into the queue; what becomes of those that do not belong there."""
        taken = Taken()
        for offer in offers:
            self._take(offer, taken)
        return taken

    def _take(self, offer: Offer, taken: Taken) -> None:
        if offer.document is None:
            nodes = {each.node.name for each in self._forecaster.nodes}
            here = self._site.settings.node
            node = offer.queue if offer.queue in nodes else here
            taken.flows[offer.run_id] = (node, offer.flow)
            return
        try:
            job = job_from_document(offer.document)
            # The gateway has done so already; this is for runs of Prefect's own API.
            job = self._forecaster.on_base_image(job, OPERATORS_TEAM, self._pool, offer.queue).job
        except CeilingUnsafe:
            return  # it is offered again, and taken when the ceiling can be trusted
        except InvalidInput as error:
            taken.refused[offer.run_id] = str(error)
            return
        record = self._taken(offer, job)
        job = job.belonging_to(record.owner, record.team)
        if record.state is RunState.ENDED or record.suspended_at is not None:
            self.called.add(offer.run_id)
        elif record.state is RunState.WAITING and record.demand is None:
            self.predicted(record, job)

    def _taken(self, offer: Offer, job: TrainingJob) -> RunRecord:
        """The run in the ledger; a member as what its array says, whatever it was made with."""
        ledger = self._site.ledger
        if offer.member is None:
            return self._enqueued(offer, job)
        record = ledger.arrays.join(*offer.member, offer.run_id)
        if record is None:  # as after Prefect's database was put back to one of before
            record = self._enqueued(offer, job)
            why = f"another run is member {offer.member[1]} of array {offer.member[0]} already"
            ledger.runs.finish(record.unleased, Exit(ExitKind.REFUSED, None, why), Measurement())
            record = ledger.runs.get(record.run_id)
        return record

    def _enqueued(self, offer: Offer, job: TrainingJob) -> RunRecord:
        """The run in the ledger, as whose the gateway says; else as the operator's.

        It came by Prefect's own API then, which is the operators'. What it says of an owner and a
        team is not believed.
        """
        whose = self._site.ledger.submissions.whose(offer.key) if offer.key else None
        job = job.belonging_to(*(whose or (os_user(), OPERATORS_TEAM)))
        return self._site.ledger.runs.enqueue(
            offer.run_id,
            job.document(),
            name=offer.name,
            owner=job.owner,
            team=job.team,
            pool=self._pool,
            queue=offer.queue,
            priority=self._gates.priorities.get(offer.queue, 0),
            submitted_at=offer.submitted_at,
        )

    def job_of(self, record: RunRecord) -> TrainingJob | Exit:
        """The job of a run that waits; how the run ends where that can be read no more.

        Nothing could start it, and no pass over the queue may fail for it.
        """
        try:
            return job_from_document(record.job)
        except InvalidInput as error:
            why = (
                f"its job cannot be read from the ledger any more ({error}); "
                "nothing was started, submit it again"
            )
            log.warning("run %s (%s): %s", record.name, record.run_id, why)
            return Exit(ExitKind.INFRASTRUCTURE, None, why)

    def predicted(self, record: RunRecord, job: TrainingJob) -> RunRecord | None:
        """*record* of a run that waits, with what its *job* will need, kept in the ledger.

        None if no node could hold that: it has ended then, and is among the `called`.
        """
        prediction, demand = self._forecaster.forecast(
            job, override=record.demand_override, pool=record.pool, queue=record.queue
        )
        with suppress(LeaseLost):  # another node has claimed it meanwhile
            self._site.ledger.runs.predict(record.unleased, prediction, demand)
        refusal = self._forecaster.refusal(
            demand,
            job.nodes,
            record.team,
            user=record.owner,
            pool=record.pool,
            queue=record.queue,
            job=job,
        )
        if refusal is None:
            return replace(record, prediction=prediction, demand=demand)
        why = str(ImpossibleDemand(refusal.field, refusal.value, refusal.allowed))
        log.info("run %s (%s): %s", record.name, record.run_id, why)
        with suppress(LeaseLost):
            exit_ = Exit(ExitKind.REFUSED, None, why)
            self._site.ledger.runs.finish(record.unleased, exit_, Measurement())
            self.called.add(record.run_id)
        return None
