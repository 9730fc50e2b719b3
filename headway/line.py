"""This node's look at the line: what of the waiting runs may start here now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headway.errors import InvalidInput
from headway.flowrun import live_flow
from headway.ledger.records import RunRecord
from headway.model.job_text import job_from_document
from headway.model.lease import Lease, Resource, Wait
from headway.model.node import NodeReading
from headway.model.run import RunState
from headway.policy.admission import possible
from headway.site import Site


@dataclass(frozen=True, slots=True)
class Offer:
    """A scheduled flow run as Prefect offers it."""

    run_id: str
    name: str
    document: Mapping[str, Any] | None
    """The job; None for a flow that is no training run."""
    submitted_at: datetime


@dataclass(frozen=True, slots=True)
class Pass:
    """What one look at the line decided."""

    start: tuple[str, ...]
    """Runs whose flow process is to be started now, in order."""
    waiting: Mapping[str, str]
    """Runs whose reason to wait is new, with that reason."""


class Line:
    """Decides, for this node, which of the offered runs start."""

    def __init__(self, site: Site) -> None:
        """Look at the line for *site*'s node."""
        self._site = site

    def look(self, offers: Sequence[Offer]) -> Pass:
        """One pass over *offers*, first in line first; a lease is granted to each that starts.

        What can never run, because its job is wrong or no node could hold it,
        is started without a lease: its flow says so and fails.
        """
        reading = self._site.read_node() if offers else None
        start: list[str] = []
        waiting: dict[str, str] = {}
        for offer in offers:
            wait = self._consider(offer, reading)
            if wait is None:
                start.append(offer.run_id)
            elif self._site.ledger.runs.set_reason(
                offer.run_id, wait.resource, wait.reason, expected_start_at=None
            ):
                waiting[offer.run_id] = wait.reason
        return Pass(tuple(start), waiting)

    def give_back(self, run_id: str) -> None:
        """The claim was lost to Prefect: the run was cancelled, or is somebody else's."""
        lease = self._site.ledger.leases.of_run(run_id)
        if lease is not None and lease.node == self._site.settings.node:
            self._site.ledger.leases.give_back(run_id, lease.token)

    def _taken_up(self, record: RunRecord) -> Wait | None:
        """A granted run that Prefect offers again: its flow process died, the next one goes on."""
        if record.node != self._site.settings.node:
            return Wait(Resource.TURN, 0, f"it is on node {record.node}")
        if live_flow(self._site.settings.state_dir, record.run_id) is not None:
            return Wait(Resource.TURN, 0, "its flow process is alive")
        return None

    def _consider(self, offer: Offer, reading: NodeReading | None) -> Wait | None:
        """What the run waits for; None when its flow is to be started."""
        site = self._site
        if offer.document is None:
            return None
        try:
            job = job_from_document(offer.document)
        except InvalidInput:
            return None
        record = site.ledger.runs.enqueue(
            offer.run_id,
            job.document(),
            name=offer.name,
            owner=job.owner,
            team=job.team,
            pool=site.settings.pool,
            priority=0,
            submitted_at=offer.submitted_at,
        )
        if record.state is not RunState.WAITING:
            return self._taken_up(record)
        prediction, demand = site.forecast(
            job,
            dataset_bytes=None,
            host_memory_bytes=(record.demand_override or {}).get("host_memory_bytes"),
        )
        site.ledger.runs.predict(offer.run_id, prediction, demand)
        if possible(demand, site.nodes()) is not None:
            return None
        answer = site.ledger.leases.admit(
            offer.run_id,
            site.settings.node,
            demand,
            reading=reading,
            **site.lease_terms(prediction),
        )
        return None if isinstance(answer, Lease) else answer
