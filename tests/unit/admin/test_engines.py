"""What is said to who brings a cluster's scheduler into the site."""

import pytest

from headway.admin.engines import _starts_images, _trust
from headway.model.engine import EnginePool


@pytest.mark.parametrize(("uid", "is_root"), [(0, True), (1000, False)])
def test_as_whom_jobs_run_is_said(uid: int, is_root: bool) -> None:
    said = _trust("ray", uid)
    assert f"uid {uid}" in said
    assert ("root" in said) == is_root
    assert "trust each other" in said


def test_a_site_of_roots_says_whose_its_jobs_at_slurm_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "as its member's own login" in _trust("slurm", 0)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "uid 1000" in _trust("slurm", 1000)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (None, "not known"),
        ({}, "none of apptainer, singularity, enroot, podman, docker is there"),
        ({"docker": "its service runs as root"}, "none (docker: its service runs as root)"),
        ({"docker": "", "podman": ""}, "by podman"),
        ({"podman": "it runs as root", "docker": ""}, "by docker"),
    ],
)
def test_what_starts_images_is_told(known: dict[str, str] | None, said: str) -> None:
    assert said in _starts_images(EnginePool("gpu", (), containers=known))
