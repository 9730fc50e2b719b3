"""A run in the queue of a site, without a worker that took it in, and its grant."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sqlmodel import Session

from headway.forecast import Forecaster
from headway.ledger import Ledger
from headway.ledger.tables import RunRow
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease, Wait
from headway.model.run import Prediction, RunState
from headway.run.attempt import Attempt
from headway.run.rendezvous import Meeting
from headway.site import Site
from headway.this_node import read_node
from tests.support.leading import admit_in_term


def enqueue(site: Site, run_id: str, job: TrainingJob) -> None:
    """Put *job* into the ledger's queue as the run *run_id*."""
    site.ledger.runs.enqueue(
        run_id,
        job.document(),
        name=job.name,
        owner=job.owner,
        team=job.team,
        pool="gpu",
        priority=0,
        submitted_at=site.ledger.now(),
    )


def fill_queue(
    ledger: Ledger, run_ids: Iterable[str], job: Mapping[str, Any], demand: Demand
) -> None:
    """Let many runs of five teams wait, submitted a second apart from a day ago on."""
    begun = ledger.now() - timedelta(days=1)
    rows = [
        RunRow(
            run_id=run_id, name="waits", owner="me", team=f"team-{number % 5}", pool="gpu",
            queue="default", priority=0, job=dict(job), state=RunState.WAITING, demand=demand,
            submitted_at=begun + timedelta(seconds=number),
            prediction=Prediction(600.0, 300.0, 1200.0),
        )
        for number, run_id in enumerate(run_ids)
    ]  # fmt: skip
    with Session(ledger.pools._database.engine) as session:
        session.add_all(rows)
        session.commit()


def claim(site: Site, run_id: str, job: TrainingJob) -> Lease | Wait:
    """Have the run, put into the queue where it is not there yet, hold what it needs here."""
    enqueue(site, run_id, job)
    record = site.ledger.runs.get(run_id)
    said = record.prediction, record.demand
    if None in said:
        said = Forecaster(site).forecast(job, override=record.demand_override, pool=record.pool)
        site.ledger.runs.predict(record.unleased, *said)
    return admit_in_term(
        site.ledger,
        run_id,
        site.settings.node,
        said[1],
        said=said[0] if said[0].sizes else None,
        reading=read_node(site),
        port_ranges=site.port_ranges,
        **Forecaster(site).lease_terms(said[0].runtime_high_s),
    )


def begun(site: Site, run_id: str, job: TrainingJob, meeting: Meeting | None = None) -> Attempt:
    """The run's attempt on this node, with the lease that it holds or gets now."""
    if site.ledger.leases.of_run(run_id) is None:
        claim(site, run_id, job)
    return Attempt(site, run_id, meeting)
