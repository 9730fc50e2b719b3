"""Which image a job starts in that names a Python in the place of an image."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headway.errors import InvalidInput
from headway.model.container_policy import ContainerPolicy
from headway.model.job import TrainingJob

Pythons = Sequence[Mapping[str, str] | None]
"""Of each node that a run may come to, what `NodeReading.pythons` says."""


class Based(NamedTuple):
    """A job that names an image."""

    job: TrainingJob
    instead: str | None = None
    """What the nodes have in the place of the image of its Python, which none of them has, empty
    for nothing; None where one has it, where no node has said what it has, or the job named an
    image itself."""


def without_engine(pythons: Mapping[str, str] | None) -> bool:
    """Whether programs start in a node's own Python, and in no image; not where it never said."""
    return pythons is not None and "" in pythons.values()


def on_base_image(job: TrainingJob, policy: ContainerPolicy, nodes: Pythons = ()) -> Based:
    """*job* with the image that the site has named for its Python; itself where it names an image.

    From here on the job names that image and nothing else: a change of the site's settings does
    not change what a run that was submitted, its retries and its repetitions start in.

    Args:
        job: What was asked for. ``3`` is the newest Python of those that most nodes have.
        policy: What holds for its team; images that it does not allow are not offered.
        nodes: Where none of them has one, the newest is taken.

    Raises:
        InvalidInput: The site has named none for this Python, or its nodes have no engine and
            another Python.
    """
    if not job.python:
        return Based(job)
    known = [each for each in nodes if each is not None]
    named, whose = policy.base_images, "this site names no such Python"
    if known and all(map(without_engine, known)):
        # Nothing reads this name of an image: programs start in the node's own Python.
        named = {python: f"python:{python}" for each in known for python in each}
        whose = "the nodes have no container engine, and another Python of their own"
    offered = {python: image for python, image in named.items() if policy.allows_image(image)}
    found = [each for each in offered if job.python in (each, each.split(".")[0])]
    if not found:
        names = " or ".join(sorted(offered, key=_version))
        allowed = f"give {names}, or an image" if names else "give an image"
        raise InvalidInput("python", job.python, f"{whose}: {allowed}")

    def count(python: str) -> int:
        return sum(each.get(python) in ("", offered[python]) for each in known)

    best = max(found, key=lambda python: (count(python), _version(python)))
    there = [python for python in sorted(offered, key=_version) if count(python)]
    instead = " or ".join(f"{python} ({offered[python]})" for python in there)
    chosen = job.model_copy(update={"image": offered[best], "python": ""})
    return Based(chosen, instead if known and not count(best) else None)


def _version(python: str) -> tuple[int, ...]:
    return tuple(int(part) for part in python.split("."))
