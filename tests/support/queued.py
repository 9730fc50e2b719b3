"""A run that waits in the queue of a site, without a worker that took it in."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sqlmodel import Session

from headway.ledger import Ledger
from headway.ledger.tables import RunRow
from headway.model.job import TrainingJob
from headway.model.lease import Demand
from headway.model.run import Prediction, RunState
from headway.site import Site


def enqueue(site: Site, run_id: str, job: TrainingJob) -> None:
    """Put *job* into the ledger's queue as the run *run_id*."""
    site.ledger.runs.enqueue(
        run_id,
        job.document(),
        name="job",
        owner="me",
        team="default",
        pool="gpu",
        priority=0,
        submitted_at=site.ledger.now(),
    )


def fill_queue(
    ledger: Ledger, run_ids: Iterable[str], job: Mapping[str, Any], demand: Demand
) -> None:
    """Let many runs of five teams wait, handed in a second apart from a day ago on."""
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
