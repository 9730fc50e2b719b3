"""What is said to who brings a cluster's scheduler into the site."""

import pytest

from headway.admin.engines import _containers, _trust


@pytest.mark.parametrize(("uid", "is_root"), [(0, True), (1000, False)])
def test_as_whom_jobs_run_is_said(uid: int, is_root: bool) -> None:
    said = _trust(uid)
    assert f"uid {uid}" in said
    assert ("root" in said) == is_root
    assert "trust each other" in said


def test_what_starts_images_on_the_submit_host_is_named() -> None:
    assert "this host has apptainer, podman" in _containers(["apptainer", "podman"])
    assert "no program that starts images" in _containers([])
