"""The worker rests on private parts of Prefect: it is tried on both ends of the wheel's range."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
NEWEST = Path(sys.prefix) / "newest-prefect"
"""Where the Makefile puts the Prefect of requirements-prefect.lock."""

pytestmark = pytest.mark.skipif(not NEWEST.exists(), reason=f"`make check` fills {NEWEST}")


def test_both_ends_of_the_range_are_here() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [Requirement(each) for each in project["dependencies"]]
    (prefect,) = [each for each in requirements if each.name == "prefect"]
    (newest,) = [each.version for each in distributions(name="prefect", path=[str(NEWEST)])]
    assert {end.version for end in prefect.specifier} == {version("prefect"), newest}


def test_the_worker_runs_on_the_newest_prefect() -> None:
    tests = [f"tests/unit/worker/test_{name}.py" for name in ("seams", "gpu_node")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests],
        env={**os.environ, "PYTHONPATH": str(NEWEST)},
        cwd=ROOT, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
