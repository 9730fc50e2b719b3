"""A project that is sent along finds its own packages, as if it were installed."""

from pathlib import Path

import pytest

from headway.run.spec import own_packages


@pytest.mark.parametrize("file", ["pyproject.toml", "setup.py", "setup.cfg"])
def test_of_a_project_the_folder_and_its_src(tmp_path: Path, file: str) -> None:
    assert own_packages(tmp_path, "/work") == {}
    (tmp_path / file).touch()
    assert own_packages(tmp_path, "/work") == {"PYTHONPATH": "/work"}
    (tmp_path / "src").mkdir()
    assert own_packages(tmp_path, "/work") == {"PYTHONPATH": "/work/src:/work"}
