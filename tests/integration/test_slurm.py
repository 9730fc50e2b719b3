"""`headway slurm` on a real Slurm: what docs/slurm.md has a reader type, and what goes wrong."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headway.cli.main import headway
from tests.support.site import forget_site
from tests.support.slurm import Slurm, two_nodes

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "slurm.md").read_text()
JOB = "name: j\npython: '3.11'\nresources: { cpus: 1, host_memory: 64MiB }\n"

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    yield from two_nodes(tmp_path_factory.mktemp("slurm"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    forget_site()
    yield
    forget_site()
    cluster.ask("scancel", "--me")


def typed(*words: str) -> Result:
    return CliRunner().invoke(headway, ["slurm", *words])


def submitted(text: str, *words: str) -> Result:
    Path("job.yaml").write_text(JOB + text)
    return typed("submit", "job.yaml", "--key", "k", *words)


def test_the_page_leads_to_a_finished_job() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    Path("job.yaml").write_text(found[1])
    said = {}
    for line in re.findall(r"^    headway slurm (.*)$", PAGE, re.MULTILINE):
        done = typed(*line.split())
        assert done.exit_code == 0, done.output
        said[line.split()[0]] = done.output
    assert "all (default)" in said["pools"]
    assert "epoch 1/1" in said["submit"]
    assert "asked for: 1 cpus, 256 MiB of memory, 10 min" in said["submit"]
    assert "is not used" in said["submit"]
    assert "epoch 1/1" in said["follow"]
    assert "ended, ok" in said["jobs"]
    assert json.loads(typed("jobs", "--json").output) == []


def test_a_key_is_handed_in_once_and_starts_in_the_files_folder(tmp_path: Path) -> None:
    text = "command: [sh, -c, 'pwd; echo once >> count; exit 7']\n"
    assert "handed in" in submitted(text).output
    assert "was handed in before" in submitted(text).output
    done = typed("follow", "k")
    assert done.exit_code == 1
    assert f"{tmp_path}\n" in done.output
    assert "ended with exit code 7" in done.output
    assert Path("count").read_text() == "once\n"


def test_one_that_has_not_ended_can_be_cancelled_and_not_forgotten() -> None:
    made = json.loads(submitted("command: [sleep, '300']\n", "--json").output)
    refused = typed("forget", "k")
    assert refused.exit_code == 1
    assert "has not ended" in refused.output
    assert made["slurm_id"] in typed("jobs").output
    assert typed("cancel", "k").exit_code == 0
    done = typed("follow", "k")
    assert done.exit_code == 1
    assert "cancelled" in done.output


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("command: [x]\nrequirements: numpy\n", (), "requirements"),
        ("command: [x]\nports: [6006]\n", (), "ports"),
        ("command: [x]\n", ("--pool", "nowhere"), "give one of the cluster's: all"),
        ("command: [x]\n", ("--set", "resources.host_memory=9TiB"), "resources.host_memory"),
        ("command: [x]\n", ("--set", "resources.gpus=3"), "no node of pool all has more"),
    ],
)
def test_what_it_cannot_have_is_refused_before_the_queue(
    text: str, words: tuple[str, ...], said: str
) -> None:
    done = submitted(text, *words)
    assert done.exit_code == 2
    assert said in done.output
    assert json.loads(typed("jobs", "--json").output) == []
    assert "headway slurm jobs" in typed("follow", "k").output
