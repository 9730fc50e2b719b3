"""Environments of requirements, on a real ledger and the process runtime."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.code.folder import pack
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.lease import Lease
from headway.policy.code_retention import TEAM_BYTES
from headway.run.attempt import Attempt
from headway.run.environment import Environment, environment_of, read_seal
from headway.run.follow import Watched
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.trees import remove
from tests.support.postgresql import with_ledger
from tests.support.queued import begun
from tests.support.small_wheel import small_wheel

PROGRAM = """\
import os, pathlib, small, sys
print(small.WORD)
try:
    pathlib.Path(small.__file__).write_text("evil")
except OSError:
    pathlib.Path(os.environ["HEADWAY_OUTPUTS"], "refused").touch()
"""


class Told:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.text = b""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        self.text += data

    def watched(self, now: Watched) -> None:
        """Nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(
        Settings(home=with_ledger(tmp_path / "home"), runtime="process", node="here"), SystemClock()
    )
    join_site(site)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)
    remove(site.settings.environments_dir)


@pytest.fixture
def job(site: Site, tmp_path: Path) -> TrainingJob:
    project = tmp_path / "project"
    project.mkdir()
    small_wheel(project, "small")
    (project / "requirements.txt").write_text("--no-index\n--find-links .\nsmall\n")
    (project / "train.py").write_text(PROGRAM)
    (project / "json.py").write_text("raise SystemExit('the maker runs code of the job')")
    folder = pack(project)
    chunks = list(folder.chunks(set(folder.manifest.chunks)))
    site.ledger.code.put("default", chunks, most_bytes=TEAM_BYTES)
    assert site.ledger.code.accept("default", folder.manifest) == []
    return TrainingJob(
        name="job", image="image:1", command=["python", "train.py"],
        code=folder.manifest.content_id, requirements="requirements.txt",
        resources=Resources(host_memory="256MiB", cpus=0.1),
    )  # fmt: skip


def admitted(site: Site, job: TrainingJob, number: int) -> tuple[Attempt, Lease, Environment]:
    attempt = begun(site, f"00000000-0000-4000-8000-00000000000{number}", job)
    lease = attempt.admit()
    assert isinstance(lease, Lease)
    wanted = environment_of(attempt)
    assert wanted is not None
    return attempt, lease, wanted


def trained(attempt: Attempt, lease: Lease) -> bytes:
    told = Told()
    assert attempt.make_environment(lease, told) is None
    followed = attempt.train(lease, dict, told)
    assert followed.status.exit_code == 0, told.text
    attempt.settle(followed)
    attempt.clean_up()
    return told.text


def test_who_takes_over_goes_on_with_what_makes_it(site: Site, job: TrainingJob) -> None:
    first, lease, wanted = admitted(site, job, 1)
    with wanted.held():
        site.runtime.create(wanted.maker(lease))
    first._begin(lease)
    site.runtime.start(first.container)
    second = begun(site, first.run_id, job)
    said = trained(second, lease)
    assert said.count(b"making the environment of requirements.txt") == 1
    assert said.count(b"small 1.0") == 1
    assert (second.folder / "outputs" / "refused").exists() == (os.geteuid() == 0)
    steps = [each.name for each in site.ledger.steps.of_run(first.run_id)]
    assert "make_environment" in steps


def test_it_is_made_once_and_anew_when_it_was_changed(site: Site, job: TrainingJob) -> None:
    for number, makes in ((1, 1), (2, 0)):
        attempt, lease, wanted = admitted(site, job, number)
        assert trained(attempt, lease).count(b"making the environment") == makes
    made = wanted.folder / read_seal(wanted.folder)["made"]
    (module,) = made.glob("environment/lib/*/site-packages/small.py")
    seen = module.stat()
    module.chmod(0o640)
    module.write_text(module.read_text().replace("small", "evil!"))
    module.chmod(seen.st_mode)
    os.utime(module, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    attempt, lease, _ = admitted(site, job, 3)
    said = trained(attempt, lease)
    assert said.count(b"making the environment") == 1
    assert b"evil" not in said
