"""Two teams on one node, on both runtimes: neither reads what is the other's."""

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.clock import SystemClock
from headway.errors import SourceMissing
from headway.model.job import Dataset, Resources, TrainingJob
from headway.model.lease import Lease
from headway.run.attempt import Attempt
from headway.run.follow import Watched
from headway.run.spec import container_spec
from headway.runtime.port import BindMount
from headway.settings import Settings
from headway.site import POLICY, Site
from headway.this_node import adopt, join_site

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

FIRST, SECOND = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
WORDS = "only for team vision"
WRITES = f"""\
umask 0; id -u; id -g; cat "$HEADWAY_DATA" "$HUB_FILE" >/dev/null
for folder in "$HEADWAY_OUTPUTS" "$HEADWAY_CHECKPOINT"; do
    mkdir "$folder/deep"; echo {WORDS} >"$folder/deep/file"; chmod -R 777 "$folder/deep"
done
echo {WORDS}
"""


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "docker":
        request.getfixturevalue("busybox_image")
    home = tmp_path / "home"
    site = Site(Settings(home=home, runtime=request.param, node="here"), SystemClock())
    site.make_ledger()
    join_site(site)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)


class Listener:
    """Keeps what the program prints."""

    def __init__(self) -> None:
        self.text = ""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        assert not skipped_bytes
        self.text += data.decode()

    def watched(self, now: Watched) -> None:
        pass


def attempt_of(site: Site, run_id: str, team: str, command: str, **more: Any) -> Attempt:
    job = TrainingJob(
        name="job",
        team=team,
        image="headway-test/busybox:local",
        command=["sh", "-c", command],
        resources=Resources(host_memory="64MiB", cpus=0.1),
        **more,
    )
    return Attempt(site, run_id, job)


def granted(attempt: Attempt) -> Lease:
    attempt.stage_data(lambda *_: None)
    lease = attempt.admit()
    assert isinstance(lease, Lease)
    return lease


@pytest.fixture
def first(site: Site, tmp_path: Path) -> Attempt:
    """An attempt of team vision that has trained; its secrets are there still."""
    (tmp_path / "set.csv").write_text(WORDS)
    attempt = attempt_of(
        site, FIRST, "vision", WRITES,
        dataset=Dataset(uri=str(tmp_path / "set.csv")), secrets={"HUB": "job-hub"},
    )  # fmt: skip
    listener = Listener()
    lease = granted(attempt)
    followed = attempt.train(lease, lambda: {"HUB": f"{WORDS} too"}, listener)
    assert followed.status.exit_code == 0, listener.text
    uid = attempt.user.partition(":")[0]
    assert listener.text.split("\n")[:3] == [uid, uid, WORDS]
    return attempt


def kept(attempt: Attempt) -> list[Path]:
    """Folders in which is what is the team's alone."""
    assert attempt.dataset is not None
    names = ("outputs", "checkpoint", "log")
    folders = [attempt.folder / name for name in names]
    return [*folders, attempt.dataset.path.parent, attempt.secrets]


def seen_by(site: Site, team: str, folders: list[Path]) -> str:
    """What a program of *team* sees of *folders*, were it given them by a mount."""
    guesses = [BindMount(folder, f"/guess/{at}") for at, folder in enumerate(folders)]
    places = " ".join(site.runtime.path_in_container(guess) for guess in guesses)
    looks = f"for place in {places}; do ls -R $place; find $place -type f -exec cat {{}} +; done"
    attempt = attempt_of(site, SECOND, team, f"id -u; {looks}")
    spec = container_spec(attempt, granted(attempt))
    site.runtime.create(replace(spec, mounts=(*spec.mounts, *guesses)))
    site.runtime.start(spec.name)
    assert site.runtime.wait(spec.name, 30.0).exit_code is not None
    return site.runtime.read_log(spec.name, 0).data.decode()


def test_the_second_team_reads_nothing_of_the_first(site: Site, first: Attempt) -> None:
    text = seen_by(site, "speech", kept(first))
    assert text.split("\n")[0] != first.user.partition(":")[0]
    assert text.count("Permission denied") >= len(kept(first)), text
    assert "vision" not in text
    for folder in kept(first):
        mode = stat.S_IMODE(folder.stat().st_mode)
        assert not mode & 0o077, f"{folder} is open: {mode:o}"
        assert folder.stat().st_uid == int(first.user.partition(":")[0])


def test_the_team_itself_does(site: Site, first: Attempt) -> None:
    assert seen_by(site, "vision", kept(first)).count(WORDS) == len(kept(first))


def test_the_second_team_stages_none_of_it(site: Site, first: Attempt, tmp_path: Path) -> None:
    """Neither what headway keeps, nor what is the first team's own below a mount root."""
    adopt(site, POLICY, {"mount_roots": [str(tmp_path)]})
    own = tmp_path / "vision"
    own.mkdir()
    (own / "set.csv").write_text(WORDS)
    os.chown(own, *(int(part) for part in first.user.split(":")))
    own.chmod(0o700)
    for place in (*kept(first), own / "set.csv"):
        attempt = attempt_of(site, SECOND, "speech", "true", dataset=Dataset(uri=str(place)))
        with pytest.raises(SourceMissing, match=r"belongs to headway|Permission denied"):
            attempt.stage_data(lambda *_: None)
    same = Dataset(uri=str(tmp_path / "set.csv"))  # public at its source: a copy of its own
    theirs = attempt_of(site, SECOND, "speech", "true", dataset=same)
    staged = theirs.stage_data(lambda *_: None)
    assert first.dataset is not None
    assert staged is not None
    assert not staged.from_cache
    assert staged.path.stat().st_uid != first.dataset.path.stat().st_uid


def test_a_run_of_before_goes_on_as_whom_it_began(site: Site) -> None:
    """After an upgrade a retry reads its checkpoint, which another user has written."""
    log = site.settings.runs_dir / FIRST / "log"
    log.mkdir(parents=True)
    os.chown(log, 65534, 65534)
    old = attempt_of(site, FIRST, "vision", "true")
    assert old.user == "65534:65534"
    old.made("checkpoint")
    assert (old.folder / "checkpoint").stat().st_uid == 65534
    assert attempt_of(site, SECOND, "vision", "true").user == site.user_of("vision")


def test_uids_that_files_belong_to_stay_the_teams(site: Site) -> None:
    had = site.user_of("vision")
    with pytest.raises(ValueError, match="team vision has had"):
        adopt(site, POLICY, {"teams": {"vision": {"uids": "200000-200999"}}})
    adopt(site, POLICY, {"teams": {"speech": {"uids": "200000-200999"}}})
    assert site.user_of("speech") == "200000:200000"
    assert site.user_of("vision") == had
