"""A run that waits in the queue of a site, without a worker that took it in."""

from headway.model.job import TrainingJob
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
