"""A site of root's at a real Slurm: each member's jobs are their own account's alone."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.gateway.actions import cancel_in_ledger
from headway.model.run import ExitKind, RunState
from headway.policy.settings import LINE
from headway.run.here import log_piece
from headway.run.outputs import list_outputs, open_output
from tests.integration.test_engine_queue import often, sh
from tests.integration.test_slurm_queue import OnSlurm
from tests.support.postgresql import with_ledger
from tests.support.slurm import Slurm, account, as_user, logins, two_nodes

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("often")]
__all__ = ["often"]

SECRET = "root:$y$of-root-alone"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    yield from two_nodes(tmp_path_factory.mktemp("slurm"))


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pwd.struct_passwd]:
    with account(tmp_path_factory.mktemp("ada") / "home") as user:
        yield user


@pytest.fixture(scope="module")
def bob(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pwd.struct_passwd]:
    with account(tmp_path_factory.mktemp("bob") / "home") as user:
        yield user


@pytest.fixture
def follower(
    tmp_path: Path,
    cluster: Slurm,
    ada: pwd.struct_passwd,
    bob: pwd.struct_passwd,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[OnSlurm]:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.setenv("SITES_SECRET", "of root")
    found = OnSlurm(with_ledger(tmp_path), ada.pw_name)
    there = {"ada": ada.pw_name, "bob": bob.pw_name, "admin": "root", "system": "daemon"}
    found.site.ledger.settings.keep(LINE, logins("t", there))
    yield found
    cluster.ask("scancel", "--partition=all")
    found.site.ledger.close()


def users(cluster: Slurm, *words: str) -> set[tuple[str, str]]:
    """Names of jobs with the uids that they have at Slurm."""
    lines = cluster.ask("squeue", "-h", "--states=all", "-o", "%j %U", *words).splitlines()
    return {(name, uid) for line in lines for name, uid in [line.split()]}


def shown(follower: OnSlurm, run_id: str) -> bytes:
    """What the gateway gives of the log."""
    return log_piece(follower.site.settings, run_id, 1, 0, whole=True).data


def test_a_members_job_is_their_own_accounts(
    follower: OnSlurm, cluster: Slurm, ada: pwd.struct_passwd, bob: pwd.struct_passwd
) -> None:
    says = 'touch here; id -un; id -G; echo "$HOME $USER"; echo m > "$HEADWAY_OUTPUTS/model"; '
    says += 'echo c > "$HEADWAY_CHECKPOINT/c"; env'
    follower.enqueue("hers", *sh(says), owner="ada")
    follower.enqueue("his", *sh(says), owner="bob")
    for name, user in (("hers", ada), ("his", bob)):
        follower.ends_well(name)
        assert (name, str(user.pw_uid)) in users(cluster)
        lines = follower.log(name).splitlines()
        groups = " ".join(str(each) for each in os.getgrouplist(user.pw_name, user.pw_gid))
        assert lines[:3] == [user.pw_name, groups, f"{user.pw_dir} {user.pw_name}"]
        assert not [line for line in lines if "of root" in line]
        folder = follower.site.settings.runs_dir / name
        for each in ("outputs/model", "outputs/here", "checkpoint/c", "log/attempt-1.log"):
            assert (folder / each).stat().st_uid == user.pw_uid
    run = follower.run("hers")
    assert run.measurement is not None
    assert run.measurement.host_peak_bytes


def test_no_other_account_reads_what_a_job_has(
    follower: OnSlurm, ada: pwd.struct_passwd, bob: pwd.struct_passwd
) -> None:
    follower.enqueue("r", *sh('echo m > "$HEADWAY_OUTPUTS/model"; echo up; sleep 60'), owner="ada")
    follower.running("r")
    settings = follower.site.settings
    follower.until(lambda: b"up" in shown(follower, "r"))
    place = settings.slurm_dir / "r-1"
    hers = [settings.runs_dir / "r" / each for each in ("outputs/model", "log/attempt-1.log")]
    hers += [place / each for each in ("job.json", "own/started.json", "own/batch.log")]
    for path in hers:
        assert as_user(ada, "cat", str(path)).returncode == 0, path
        assert as_user(bob, "cat", str(path)).returncode != 0, path
    for user in (ada, bob):
        assert as_user(user, "cat", str(place / "request.json")).returncode != 0
    for folder in (place, settings.slurm_dir, settings.runs_dir / "r"):
        assert as_user(ada, "touch", str(folder / "new")).returncode != 0
        assert as_user(bob, "ls", str(folder)).returncode != 0
    assert as_user(ada, "rm", "-rf", str(place / "own")).returncode != 0
    assert place.joinpath("own").is_dir()


def test_what_a_job_plants_gives_its_member_nothing_of_roots(
    follower: OnSlurm, tmp_path: Path
) -> None:
    secret = tmp_path / "shadow"
    secret.touch(0o600)
    secret.write_text(SECRET)
    own = follower.site.settings.slurm_dir / "r-1/own"
    plants = (
        f"cd ..; ln -sf {secret} log/attempt-1.log; ln -s {secret} $HEADWAY_OUTPUTS/leak; "
        f"ln -s {tmp_path} $HEADWAY_OUTPUTS/folder; cd {own}; "
        f"for each in claim started.json batch.log rank.0.json; do rm -f $each; done; "
        f"ln -s {secret} started.json; ln -s {secret} batch.log; mkfifo claim rank.0.json; sleep 8"
    )
    follower.enqueue("r", *sh(plants), owner="ada")
    exit_ = follower.ended("r").exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.OK, exit_
    assert SECRET not in str(follower.run("r"))
    log = follower.site.settings.runs_dir / "r/log/attempt-1.log"
    assert log.is_symlink()
    assert shown(follower, "r") == b""
    listed = list_outputs(log.parents[1])
    assert listed is not None
    assert listed.files == ()
    for name in (b"leak", b"folder/shadow"):
        with pytest.raises(OSError, match=r"\[Errno"):
            open_output(log.parents[1], name)
    follower.until(lambda: not own.exists())
    assert secret.read_text() == SECRET
    assert secret.stat().st_uid == 0


def test_another_users_job_is_taken_for_no_members(
    follower: OnSlurm, cluster: Slurm, bob: pwd.struct_passwd
) -> None:
    """Whoever may use the cluster may write any comment."""
    for number in (1, 2):
        said = as_user(
            bob, "sbatch", f"--comment=headway:s:r-{number}", "--output=/dev/null", "--mem=64",
            "--job-name=spoof", "--wrap=sleep 300", SLURM_CONF=cluster.env["SLURM_CONF"],
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
    assert follower.jobs.engine.jobs() == ()
    follower.enqueue("r", *sh("id -un"), owner="ada")
    follower.ends_well("r")
    assert follower.run("r").attempt == 1
    assert shown(follower, "r") != f"{bob.pw_name}\n".encode()
    assert ("spoof", str(bob.pw_uid)) in users(cluster, "--states=RUNNING")


def test_a_claim_that_names_no_job_keeps_none_from_being_cancelled(
    follower: OnSlurm, cluster: Slurm
) -> None:
    own = follower.site.settings.slurm_dir / "r-1/own"
    lies = f"rm {own}/claim; echo -n zzz > {own}/claim; echo up; sleep 300"
    follower.enqueue("r", *sh(lies), owner="ada", stop_grace="1s")
    follower.until(lambda: b"up" in shown(follower, "r"))
    cancel_in_ledger(follower.site.ledger, "r", "by me")
    follower.until(lambda: not users(cluster, "--states=RUNNING", "--name=r"))


def test_cancelling_ends_no_job_of_somebody_else(
    follower: OnSlurm, cluster: Slurm, bob: pwd.struct_passwd
) -> None:
    follower.enqueue("his", *sh("sleep 300"), owner="bob")
    follower.running("his")
    job = cluster.ask("squeue", "-h", "--name=his", "-o", "%i")
    own = follower.site.settings.slurm_dir / "hers-1/own"
    lies = f"rm {own}/claim; echo -n {job} > {own}/claim; echo up; sleep 300"
    follower.enqueue("hers", *sh(lies), owner="ada", stop_grace="1s")
    follower.until(lambda: b"up" in shown(follower, "hers"))
    cancel_in_ledger(follower.site.ledger, "hers", "by me")
    follower.until(lambda: not users(cluster, "--states=RUNNING", "--name=hers"))
    assert follower.run("his").state is RunState.RUNNING
    assert ("his", str(bob.pw_uid)) in users(cluster, "--states=RUNNING")
    cancel_in_ledger(follower.site.ledger, "his", "by me")
    follower.until(lambda: not users(cluster, "--states=RUNNING", "--name=his"))


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (
            "eve",
            "ask an operator of the site to name their login of the cluster in teams.t",
        ),
        ("admin", "says root (uid 0), an account of the system"),
        ("system", "an account of the system"),
    ],
)
def test_who_has_no_account_is_refused_before_the_queue(
    follower: OnSlurm, cluster: Slurm, owner: str, said: str
) -> None:
    follower.enqueue(owner, *sh(":"), owner=owner)
    exit_ = follower.ended(owner).exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.REFUSED
    assert said in exit_.message
    assert not users(cluster, f"--name={owner}")
