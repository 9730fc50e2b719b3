"""Two teams on one node, on both runtimes: neither reads what is the other's."""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headway.admin.doctor import examine
from headway.clock import SystemClock
from headway.errors import InvalidInput
from headway.model.job import TrainingJob
from headway.model.job_parts import Dataset, Resources
from headway.model.lease import Lease
from headway.prefect.client import PrefectServer
from headway.run.attempt import Attempt
from headway.run.follow import Watched
from headway.run.spec import container_spec
from headway.run.upkeep import AttemptUpkeep
from headway.runtime.errors import PolicyViolation
from headway.runtime.port import BindMount, RuntimeKind
from headway.settings import Settings
from headway.site import POLICY, Site
from headway.staging.errors import SourceMissing
from headway.this_node import adopt, join_site
from samples.local_image import BUSYBOX, build
from tests.support import dockerd
from tests.support.leading import admitted
from tests.support.postgresql import with_ledger
from tests.support.queued import begun
from tests.support.site import let_through

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

MAPPED_TO = 231_072
NO_PREFECT = PrefectServer("http://127.0.0.1:9/api", auth=None)
FIRST, SECOND = str(uuid4()), str(uuid4())
"""Containers are named after them, and other processes of tests may share the engine."""
WORDS = "only for team vision"
WRITES = f"""\
umask 0; id -u; id -g; cat "$HEADWAY_DATA" "$HUB_FILE" >/dev/null
for folder in "$HEADWAY_OUTPUTS" "$HEADWAY_CHECKPOINT"; do
    mkdir "$folder/deep"; echo {WORDS} >"$folder/deep/file"; chmod -R 777 "$folder/deep"
done
echo {WORDS}
"""


@pytest.fixture(scope="module")
def remapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an engine that maps users of containers to others of the host."""
    if reason := dockerd.why_none():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("d")
    let_through(folder)
    for name in ("subuid", "subgid"):
        (folder / name).write_text(f"daemon:{MAPPED_TO}:200000\n")
    engine = dockerd.Daemon(folder, options=("--userns-remap", "daemon"), ids=folder)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.runtime.docker.engine.SUBUID", folder / "subuid")
        patch.setattr("headway.runtime.docker.engine.SUBGID", folder / "subgid")
        stack.callback(engine.stop)
        engine.start()
        build("busybox", BUSYBOX, docker_host=engine.host)
        yield engine.host


_RUNTIMES = ("process", pytest.param("docker", marks=pytest.mark.docker))
also_remapped = pytest.mark.parametrize(
    "site", [*_RUNTIMES, pytest.param("remapped", marks=pytest.mark.docker)], indirect=True
)


@pytest.fixture(params=_RUNTIMES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    settings = Settings(home=with_ledger(tmp_path / "home"), runtime="process", node="here")
    if request.param != "process":
        settings = settings.model_copy(update={"runtime": "docker"})
    if request.param == "docker":
        request.getfixturevalue("busybox_image")
    if request.param == "remapped":
        address = request.getfixturevalue("remapped")
        settings = settings.model_copy(update={"docker_host": address})
    site = Site(settings, SystemClock())
    site.make_ledger()
    join_site(site)
    if request.param == "remapped":
        adopt(site, POLICY, {"uids": "300000-399999"})
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
    return begun(site, run_id, job)


def granted(attempt: Attempt) -> Lease:
    attempt.stage_data(lambda *_: None)
    return admitted(attempt)


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
    uid = str(int(attempt.user.partition(":")[0]) - mapped_by(site))
    assert listener.text.split("\n")[:3] == [uid, uid, WORDS]
    return attempt


def mapped_by(site: Site) -> int:
    """How far the users of the host are from those that containers know them as."""
    return MAPPED_TO if site.settings.docker_host is not None else 0


def kept(attempt: Attempt) -> list[Path]:
    """Folders in which is what is the team's alone."""
    names = ("outputs", "checkpoint", "log")
    folders = [attempt.folder / name for name in names]
    return [*folders, attempt.datasets[""].path.parent, attempt.secrets]


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


@also_remapped
def test_the_second_team_reads_nothing_of_the_first(site: Site, first: Attempt) -> None:
    text = seen_by(site, "speech", kept(first))
    assert text.split("\n")[0] != first.user.partition(":")[0]
    assert text.count("Permission denied") >= len(kept(first)), text
    assert "vision" not in text
    for folder in kept(first):
        mode = stat.S_IMODE(folder.stat().st_mode)
        assert not mode & 0o077, f"{folder} is open: {mode:o}"
        assert folder.stat().st_uid == int(first.user.partition(":")[0])


@also_remapped
def test_all_that_its_program_wrote_is_the_teams_on_the_host(site: Site, first: Attempt) -> None:
    """Also where the engine maps users: in its container it had another number."""
    owner = int(first.user.partition(":")[0])
    found = [path for folder in kept(first)[:3] for path in folder.rglob("*")]
    assert {path.name for path in found} >= {"deep", "file", "attempt-1.log"}
    assert {(path.stat().st_uid, path.stat().st_gid) for path in found} == {(owner, owner)}
    said = {each.what: each for each in examine(site, NO_PREFECT)}["teams"]
    assert said.ok, said
    assert ("to which the engine remaps users" in said.found) == bool(mapped_by(site))
    if mapped_by(site):
        adopt(site, POLICY, {})
        said = {each.what: each for each in examine(site, NO_PREFECT)}["teams"]
        assert (said.ok, "new teams get uids outside of it" in said.found) == (False, True)


@also_remapped
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
    for number, place in enumerate((*kept(first), own / "set.csv")):
        run_id = f"{SECOND[:-4]}{number:04}"
        attempt = attempt_of(site, run_id, "speech", "true", dataset=Dataset(uri=str(place)))
        with pytest.raises(SourceMissing, match=r"belongs to headway|Permission denied"):
            attempt.stage_data(lambda *_: None)
    same = Dataset(uri=str(tmp_path / "set.csv"))  # public at its source: a copy of its own
    theirs = attempt_of(site, SECOND, "speech", "true", dataset=same)
    staged = theirs.stage_data(lambda *_: None)[""]
    assert not staged.from_cache
    assert staged.path.stat().st_uid != first.datasets[""].path.stat().st_uid


def test_secrets_and_images_of_a_team_hold_on_the_node_too(site: Site) -> None:
    """Also for a run that no gateway has seen."""
    rules = {"secret_prefixes": ["job-vision-"], "images": ["headway-test/vision:local"]}
    adopt(site, POLICY, {"teams": {"vision": rules}})
    secrets = {"HUB": "job-vision-hub"}
    theirs = attempt_of(site, FIRST, "speech", "true", secrets=secrets)
    with pytest.raises(InvalidInput, match="another team's"):
        theirs.stage_data(lambda *_: None)
    own = attempt_of(site, SECOND, "vision", "true", secrets=secrets)
    lease = granted(own)
    with pytest.raises(PolicyViolation, match="headway-test/busybox:local"):
        own.launch(lease, lambda: {"HUB": WORDS})
    assert site.runtime.containers() == []


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


KEEPS = """\
cat "$HEADWAY_USER_DATA"/*; echo "of $WHO" >"$HEADWAY_USER_DATA/state"
echo up >>"$HEADWAY_USER_LOG/service.log"; wc -l <"$HEADWAY_USER_LOG/service.log"
"""


def with_folders(site: Site, number: int, owner: str, team: str, command: str = KEEPS) -> str:
    """What a run that has its owner's folders prints."""
    attempt = attempt_of(
        site, f"{FIRST[:-2]}{number:02}", team, command,
        owner=owner, user_folder=True, env={"WHO": owner},
    )  # fmt: skip
    listener = Listener()
    attempt.end(attempt.settle(attempt.train(granted(attempt), dict, listener))[0])
    attempt.clean_up()
    return listener.text


@also_remapped
def test_a_users_folders_stay_from_run_to_run_and_are_nobody_elses(site: Site) -> None:
    assert with_folders(site, 1, "ada", "vision").endswith("1\n")
    assert with_folders(site, 2, "ada", "vision") == "of ada\n2\n"
    for number, (owner, team) in enumerate([("eve", "vision"), ("ada", "speech")], 3):
        text = with_folders(site, number, owner, team)
        assert ("of ada" in text, text.endswith("1\n")) == (False, True), text
    users = site.settings.users_dir
    uid = {team: int(site.user_of(team).partition(":")[0]) for team in ("vision", "speech")}
    for team, owner in (("vision", "ada"), ("vision", "eve"), ("speech", "ada")):
        for name in ("data", "log"):
            found = (users / team / owner / name).stat()
            assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (uid[team], 0o700)
        above = (users / team / owner).stat()
        assert (above.st_uid, stat.S_IMODE(above.st_mode)) == (0, 0o711)
    guess = BindMount(users / "vision" / "ada" / "data", "/guess")
    assert "of ada" not in seen_by(site, "speech", [guess.source])


def test_a_link_in_the_place_of_a_users_folder_leads_nowhere(site: Site, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "state").write_text("canary")
    tries = 'cd /; rm -rf "$HEADWAY_USER_DATA"; ln -s $PRECIOUS "$HEADWAY_USER_DATA"; true'
    tries += '; ln -s $PRECIOUS/state "$HEADWAY_USER_LOG/state"'
    with_folders(site, 1, "ada", "vision", tries.replace("$PRECIOUS", str(precious)))
    folder = site.settings.users_dir / "vision" / "ada" / "data"
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert "canary" not in with_folders(site, 2, "ada", "vision", 'cat "$HEADWAY_USER_LOG"/*')
    found = precious.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o700)


LOOKS = """\
cd "$HEADWAY_VOLUME_SHARED"; cat all; echo new >all; cd "$HF_HOME"; cat *; echo "of $TEAM" >mine
"""


def with_volumes(site: Site, number: int, team: str, command: str = LOOKS, **more: Any) -> str:
    """What a run that asks for the site's volumes prints."""
    asked: dict[str, Any] = {"volumes": ["shared", "models"], "env": {"TEAM": team}} | more
    attempt = attempt_of(site, f"{FIRST[:-2]}{number:02}", team, command, **asked)
    listener = Listener()
    try:
        attempt.end(attempt.settle(attempt.train(granted(attempt), dict, listener))[0])
    finally:
        attempt.clean_up()
    return listener.text


def offered(site: Site, folder: Path, **more: Any) -> None:
    """Have the operator offer one folder to read and one to write."""
    volumes = {
        "shared": {"path": str(folder / "shared")},
        "models": {"path": str(folder / "models"), "writable": True, "variables": ["HF_HOME"]},
    }
    adopt(site, POLICY, (site.ledger.settings.get(POLICY) or {}) | {"volumes": volumes | more})


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    place = tmp_path / "volumes"
    for name in ("shared", "models"):
        (place / name).mkdir(parents=True)
        (place / name).chmod(0o755)
    (place / "shared/all").write_text("for all\n")
    (place / "shared/all").chmod(0o666)
    let_through(place)
    return place


@also_remapped
def test_a_volume_is_read_by_all_or_a_teams_own(site: Site, folders: Path) -> None:
    offered(site, folders)
    first = with_volumes(site, 1, "vision")
    assert first.startswith("for all\n")
    assert "of vision" in with_volumes(site, 2, "vision")
    assert "of vision" not in with_volumes(site, 3, "speech")
    if site.runtime.kind is RuntimeKind.DOCKER:  # without an engine nothing is mounted
        assert (folders / "shared/all").read_text() == "for all\n"
    for team in ("vision", "speech"):
        found = (folders / "models" / team).stat()
        uid = int(site.user_of(team).partition(":")[0])
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (uid, 0o700)
        assert (folders / "models" / team / "mine").read_text() == f"of {team}\n"


def test_what_a_job_says_of_a_variable_holds(site: Site, folders: Path) -> None:
    offered(site, folders)
    said = with_volumes(site, 1, "vision", 'echo "at $HF_HOME"', env={"HF_HOME": "/tmp"})
    assert said == "at /tmp\n"


def test_a_volume_that_a_team_may_not_have_is_refused(site: Site, folders: Path) -> None:
    offered(site, folders, models={"path": str(folders / "models"), "teams": ["speech"]})
    with pytest.raises(InvalidInput, match="team vision may have shared: operators name them"):
        with_volumes(site, 1, "vision")
    offered(site, folders, shared={"path": str(folders / "gone")})
    with pytest.raises(InvalidInput, match="gone of node here cannot be used: it is no directory"):
        with_volumes(site, 2, "vision")


def test_a_link_in_the_place_of_a_teams_folder_is_not_followed(site: Site, folders: Path) -> None:
    offered(site, folders)
    (folders / "models/vision").symlink_to(folders / "shared")
    with pytest.raises(InvalidInput, match="models/vision is a link"):
        with_volumes(site, 1, "vision")
    assert (folders / "shared").stat().st_uid == 0


def test_folders_of_nobody_are_refused(site: Site) -> None:
    with pytest.raises(InvalidInput, match="user_folder is its owner's"):
        with_folders(site, 1, "", "vision")


def test_what_lies_in_a_users_folders_counts_against_the_disk(site: Site) -> None:
    fills = 'head -c 3000000 /dev/urandom >"$HEADWAY_USER_DATA/file"'
    with_folders(site, 1, "ada", "vision", fills)
    attempt = attempt_of(site, SECOND, "vision", "true", owner="ada", user_folder=True)
    meter = AttemptUpkeep(attempt, granted(attempt), ())._disk
    uses = {each.what: each.used_bytes for each in meter.measure()}
    assert uses["its owner's folder"] >= 3_000_000
