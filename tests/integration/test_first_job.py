"""The first page for members, typed line by line on a live site; its login is in test_one_door."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.site import BIN, ROOT, LiveSite

pytestmark = pytest.mark.prefect

PAGE = (ROOT / "docs/first-job.md").read_text()
LINE = re.compile(r"^ {4}(headway .*)$", re.MULTILINE)
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def told(process_site: LiveSite, tmp_path: Path) -> dict[str, str]:
    """What each line said. The site has no GPU, no images and no index of packages."""
    program = block("python").replace("time.sleep(1)", "time.sleep(0.1)")
    job = block("yaml").replace('"3.11"', f'"{HERE}"')
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "job.yaml").write_text(job)
    env = os.environ | process_site.at_the_gateway() | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    lines = [each for each in LINE.findall(PAGE) if " login " not in each and "--gpus" not in each]
    lines.sort(key=lambda line: " results " in line)  # once the members have ended
    said = {}
    for line in lines:
        typed = line.partition("  ")[0].replace("RUN", "train")
        done = subprocess.run(
            ["bash", "-c", typed],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        said[line.partition("  ")[0]] = done.stdout + done.stderr
        assert done.returncode == (2 if " why " in line else 0), (typed, said)
    return said


def test_each_line_does_what_the_page_says(told: dict[str, str], tmp_path: Path) -> None:
    assert "epoch 10/10, loss 0.100" in told["headway run train.py"]
    assert "train" in told["headway runs --mine"]
    assert "epoch 10/10" in told["headway logs RUN -f"]
    assert "it has ended" in told["headway why RUN"]
    assert (tmp_path / "results").is_dir()
    assert "epoch 10/10" in told["headway submit job.yaml --watch"]
    assert "loss 0.010" in told["headway run train.py -- --lr 0.01"]
    losses = [f"{each / 10:.3g}" for each in (1, 0.5, 0.2, 0.1)]
    assert all(each in told["headway results sweep"] for each in losses)
