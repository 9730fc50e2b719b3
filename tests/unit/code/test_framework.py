"""Which framework a program uses, by what it imports."""

from pathlib import Path

import pytest

from headway.client.uploads import with_training
from headway.code.framework import framework_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("from model import Net\nimport numpy as np, os\n")
    (tmp_path / "model.py").write_text("def net():\n    import torch.nn as nn\n")
    (tmp_path / "plain.py").write_text("import os\nraise SystemExit('it was run')\n")
    (tmp_path / "broken.py").write_text("import torch\nthis is no Python\n")
    (tmp_path / "requirements.txt").write_text("scikit-learn>=1.5\nxgboost-cpu\n# torch\n")
    return tmp_path


def test_imports_of_the_script_and_of_what_it_imports_count(folder: Path) -> None:
    assert framework_of(folder, ["python", "-u", "train.py", "--x", "1"], "") == "torch"
    assert framework_of(folder, ["bash", "-c", "cd . && python train.py"], "") == "torch"


def test_a_folder_of_modules_without_an_init_is_no_obstacle(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "parts/layers.py").write_text("import os\n")
    (folder / "train.py").write_text("from parts.layers import Layer\nimport torch\n")
    assert framework_of(folder, ["python", "train.py"], "") == "torch"


def test_nothing_is_run_and_nothing_is_known_of_what_cannot_be_read(folder: Path) -> None:
    assert framework_of(folder, ["python", "plain.py"], "") == ""
    assert framework_of(folder, ["python", "broken.py"], "") == ""
    assert framework_of(folder, ["python", "absent.py"], "absent.txt") == ""


def test_packages_that_are_required_count(folder: Path) -> None:
    assert framework_of(folder, ["python", "plain.py"], "requirements.txt") == "sklearn"


def test_what_a_job_says_itself_stays(folder: Path) -> None:
    job = {"name": "t", "command": ["python", "train.py"], "training": {"epochs": 3}}
    assert with_training(job, folder)["training"] == {"epochs": 3, "framework": "torch"}
    said = {**job, "training": {"framework": "mine"}}
    assert with_training(said, folder) == said
    assert with_training({**job, "command": ["python", "plain.py"]}, folder)["training"] == {
        "epochs": 3
    }
