"""What lies ahead of an attempt, as its job says it and as runs of its recipe have taught it."""

from statistics import NormalDist
from typing import NamedTuple

from headway.estimate.features import from_job
from headway.estimate.iterations import after_count_of, count_of, newest_alike
from headway.estimate.remaining.course import Course, common_course
from headway.model.job import TrainingJob
from headway.progress.options import Totals, totals_of
from headway.run.here import NodeAttempt

_COURSE_RUNS, _COURSE_POINTS = 2, 200


class Ahead(NamedTuple):
    """What is known before its log says anything."""

    totals: Totals = Totals()
    """How long it trains, as the job says."""
    iterations: NormalDist | None = None
    """Where nobody says how many, or only the most: the law of their logarithm, by runs like it."""
    after_count: NormalDist | None = None
    """The same of how many seconds it goes on when all that it counts first is done."""
    epochs: NormalDist | None = None
    """The same of its epochs."""
    course: Course | None = None
    """How the speed of runs like it changed on their way."""


def ahead_of(attempt: NodeAttempt, gpus: int) -> Ahead:
    """What lies ahead of *attempt*, with *gpus* on all its nodes."""
    job = attempt.job
    recent = attempt.forecaster.recent(job)
    asked = from_job(job, gpus=gpus, nodes=job.nodes, dataset_bytes=attempt.dataset_bytes)
    thinned = attempt.site.ledger.progress.thinned
    newest = newest_alike(asked, recent, _COURSE_RUNS)
    return Ahead(
        totals_of_job(job),
        count_of(asked, recent),
        after_count_of(asked, recent),
        count_of(asked, recent, "epochs"),
        common_course([thinned(*each, _COURSE_POINTS) for each in newest]),
    )


def totals_of_job(job: TrainingJob) -> Totals:
    """How long *job* trains: by its word, its command and files, else its ``EPOCHS=6``."""
    totals = totals_of(job.command, job.configuration)
    if not any(totals[:3]):
        given = [f"{name}={value}" for name, value in job.env.items()]
        totals = totals._replace(epochs=totals_of(given).epochs)
    return totals._replace(epochs=job.training.epochs or totals.epochs)
