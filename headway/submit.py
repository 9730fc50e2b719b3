"""What a job is checked for before it is handed over: what this site could never run."""

from headway.errors import ImpossibleDemand, InvalidInput
from headway.model.job import TrainingJob
from headway.policy.admission import possible
from headway.site import Site


def check_against_site(job: TrainingJob, site: Site, *, where: str) -> None:
    """Refuse what no node of the site could ever run, before anything is queued.

    Raises:
        ImpossibleDemand: Larger than any node.
        InvalidInput: An image that the site's container policy does not allow.
    """
    policy = site.container_policy
    if not policy.allows_image(job.image):
        allowed = f"this site allows {', '.join(policy.images)}"
        raise InvalidInput("image", job.image, allowed, where=where)
    _, demand = site.forecast(job, dataset_bytes=None, host_memory_bytes=None)
    refusal = possible(demand, site.nodes())
    if refusal is not None:
        raise ImpossibleDemand(refusal.field, refusal.value, refusal.allowed, where=where)
