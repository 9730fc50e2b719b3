"""Sizes: what a job asks for that leaves them open, and what is tried of it."""

import pytest

from headway.errors import InvalidInput
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.job_text import job_from_document, job_gpus, job_nodes, read_job
from headway.model.number_range import NumberRange
from headway.model.size import Size, sizes_of

SMALL = "name: t\nimage: python\ncommand: [python]\n"


def test_a_range_is_kept_as_it_was_written() -> None:
    job = read_job(SMALL + "resources: {gpus: 2-8, nodes: 2-4}").job
    assert (job.resources.gpus, job.resources.nodes) == (NumberRange(2, 8), NumberRange(2, 4))
    document = job.document()
    assert (document["resources"]["gpus"], document["resources"]["nodes"]) == ("2-8", "2-4")
    assert job_from_document(document) == job
    assert (job_gpus(document), job_nodes(document)) == (2, 2), "it asks for the fewest at least"
    assert (job.is_elastic, job.gpus, job.nodes) == (True, 2, 2)


def test_a_job_without_a_range_has_one_size() -> None:
    for written, size in (("gpus: 2", (1, 2)), ("nodes: 3", (3, 0)), ("gpus: 4-4", (1, 4))):
        job = read_job(SMALL + f"resources: {{{written}}}").job
        assert (job.sizes, job.is_elastic) == ((Size(*size),), False)


@pytest.mark.parametrize(
    ("nodes", "gpus", "sizes"),
    [
        (1, NumberRange(2, 8), [(1, 2), (1, 4), (1, 8)]),
        (1, NumberRange(3, 7), [(1, 3), (1, 4), (1, 7)]),
        (NumberRange(2, 4), 0, [(2, 0), (3, 0), (4, 0)]),
        (NumberRange(2, 3), 2, [(2, 2), (3, 2)]),
        (NumberRange(1, 20), 0, [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (20, 0)]),
        (NumberRange(1, 2), NumberRange(1, 2), [(1, 1), (1, 2), (2, 1), (2, 2)]),
    ],
)
def test_all_nodes_and_the_powers_of_two_of_gpus_are_tried(
    nodes: int | NumberRange, gpus: int | NumberRange, sizes: list[tuple[int, int]]
) -> None:
    assert list(sizes_of(nodes, gpus)) == sizes


def test_an_attempt_has_a_size_of_its_own() -> None:
    job = TrainingJob(
        name="t", image="i", command=["x"], resources=Resources(nodes="2-4", gpus="1-2")
    )
    fixed = job.of_size(Size(3, 2))
    assert (fixed.nodes, fixed.gpus, fixed.is_elastic) == (3, 2, False)
    assert Size(3, 2).words == "3 nodes with 2 GPUs each"
    assert (Size(3, 0).words, Size(1, 1).words, Size(1, 0).words) == ("3 nodes", "1 GPU", "1 node")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("session: {}\nresources: {nodes: 1-2}", "resources.nodes"),
        ("resources: {gpus: 1-2, cpu_fallback: true}", "resources.cpu_fallback"),
    ],
)
def test_what_a_range_does_not_go_with_is_refused(more: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_job(SMALL + more)
    assert caught.value.field == field
