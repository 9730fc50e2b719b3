"""A job that names a Python starts in the image that the site has named for it."""

from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.model.container_policy import ContainerPolicy
from headway.model.job import TrainingJob
from headway.model.job_text import job_from_document, read_job
from headway.policy.base_image import on_base_image

NAMED = {"3.9": "base:3.9", "3.11": "base:3.11", "3.10": "base:3.10"}


def job(**more: Any) -> TrainingJob:
    return TrainingJob(name="t", command=["python", "train.py"], **more)


def policy(**more: Any) -> ContainerPolicy:
    return ContainerPolicy.model_validate({"base_images": NAMED} | more)


@pytest.mark.parametrize(("python", "image"), [("3.9", "base:3.9"), ("3", "base:3.11")])
def test_the_image_of_its_python_is_what_the_job_names_from_then_on(
    python: str, image: str
) -> None:
    found = on_base_image(job(python=python), policy()).job
    assert (found.image, found.python) == (image, "")
    assert job_from_document(found.document()) == found
    assert on_base_image(found, ContainerPolicy()).job == found


def test_a_python_without_an_allowed_image_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(InvalidInput, match=r"python: got \"3.12\".*give 3.9 or 3.10 or 3.11, or"):
        on_base_image(job(python="3.12"), policy())
    with pytest.raises(InvalidInput, match=r"give 3.9, or an image"):
        on_base_image(job(python="3.11"), policy(images=["base:3.9"]))
    with pytest.raises(InvalidInput, match=r"no such Python: give an image"):
        on_base_image(job(python="3"), policy(base_images={}))


OLD, BOTH, NONE = {"3.9": "base:3.9"}, {"3.9": "base:3.9", "3.11": "base:3.11"}, dict[str, str]()
OWN = {"3.12": ""}
"""A node without an engine."""


@pytest.mark.parametrize(
    ("python", "nodes", "image", "instead"),
    [
        ("3", [OLD], "base:3.9", None),  # the newest named one would have to be pulled
        ("3", [OLD, BOTH], "base:3.9", None),
        ("3", [BOTH, None], "base:3.11", None),
        ("3", [NONE], "base:3.11", ""),
        ("3.10", [OLD, BOTH], "base:3.10", "3.9 (base:3.9) or 3.11 (base:3.11)"),
        ("3", [None], "base:3.11", None),
        ("3", [OWN], "python:3.12", None),
        ("3.12", [OWN, None], "python:3.12", None),
        ("3", [OWN, OLD], "base:3.9", None),
    ],
)
def test_what_is_chosen_is_what_the_nodes_have(
    python: str, nodes: list[Any], image: str, instead: str | None
) -> None:
    found, missing = on_base_image(job(python=python), policy(), nodes)
    assert (found.image, missing) == (image, instead)


def test_nodes_without_an_engine_have_no_other_python_than_their_own() -> None:
    with pytest.raises(InvalidInput, match=r"no container engine.*: give 3.12, or an image"):
        on_base_image(job(python="3.11"), policy(), [OWN])


def test_the_version_is_the_one_that_was_written() -> None:
    written = "name: t\npython: 3.10\ncommand: [python]\n"
    assert read_job(written).job.python == "3.10"  # not the number 3.1
    for wrong in ("2.7", "3.11.4", "latest", "true"):
        with pytest.raises(InvalidInput, match="python: got"):
            read_job(f"name: t\npython: {wrong}\ncommand: [python]\n")
    with pytest.raises(InvalidInput, match="give it or image"):
        job(python="3.11", image="base")


@pytest.mark.parametrize("named", [{"2.7": "base"}, {"3": "base"}, {"3.11": "BASE"}])
def test_what_the_site_names_are_versions_with_images(named: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"name a Python such as 3.11|give an image"):
        policy(base_images=named)
