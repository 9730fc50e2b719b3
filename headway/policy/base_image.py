"""Which image a job starts in that names a Python in the place of an image."""

from headway.errors import InvalidInput
from headway.model.container_policy import ContainerPolicy
from headway.model.job import TrainingJob


def on_base_image(job: TrainingJob, policy: ContainerPolicy) -> TrainingJob:
    """*job* with the image that the site has named for its Python; itself where it names an image.

    From here on the job names that image and nothing else: a change of the site's settings does
    not change what a run that was handed in, its retries and its repetitions start in.

    Args:
        job: What was asked for. ``3`` is the newest Python that the site has named.
        policy: What holds for its team; images that it does not allow are not offered.

    Raises:
        InvalidInput: The site has named none for this Python.
    """
    if not job.python:
        return job
    offered = {
        python: image for python, image in policy.base_images.items() if policy.allows_image(image)
    }
    newest = sorted(offered, key=_version, reverse=True)
    found = [each for each in newest if job.python in (each, each.split(".")[0])]
    if not found:
        known = " or ".join(reversed(newest))
        allowed = f"give {known}, or an image" if known else "give an image"
        raise InvalidInput("python", job.python, f"this site names no such Python: {allowed}")
    return job.model_copy(update={"image": offered[found[0]], "python": ""})


def _version(python: str) -> tuple[int, ...]:
    return tuple(int(part) for part in python.split("."))
