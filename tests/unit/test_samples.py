"""The samples are jobs that a site would take; `make samples` runs them."""

from pathlib import Path

import pytest

from headway.model.job_text import read_job
from samples.try_all import ON_THE_CPU, SAMPLES, jobs

FILES = sorted(SAMPLES.glob("*/job.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_sample_is_a_job_whose_files_are_there(file: Path) -> None:
    job = read_job(file.read_bytes(), filename=file.name).job
    assert job.name == file.parent.name
    if job.workdir:
        assert job.python
        folder = file.parent / job.workdir
        assert not job.requirements or (folder / job.requirements).is_file()
        assert all((folder / word).is_file() for word in job.command if word.endswith(".py"))
        assert f"headway submit samples/{job.name}/job.yaml" in (folder / "README.md").read_text()


def test_the_samples_that_are_tried_need_no_gpu_and_one_node() -> None:
    found = {folder.name: read for folder, read in jobs([*ON_THE_CPU, "retries=0"])}
    assert found.keys() == {"boosting", "ddp", "huggingface", "pytorch", "sweep"}
    for read in found.values():
        resources = read.job.resources
        assert (resources.gpus, resources.nodes, read.job.retries) == (0, 1, 0)
    assert found["sweep"].array is not None
