"""Images on a real Slurm, started by a real Podman, as an ordinary user."""

import json
import os
import pwd
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from headway.admin.engines import with_containers
from headway.clock import SystemClock
from headway.engine.containers import Mount
from headway.engine.place import Place
from headway.engine.port import Request
from headway.engine.slurm import SlurmEngine
from headway.model.run import ExitKind
from headway.units import MIB
from tests.ports.engine_harness import OBEYS, EngineHarness
from tests.support.slurm import Slurm, slurm, why_none

pytestmark = pytest.mark.slurm
IMAGE = "localhost/headway-test:1"
HOLDS = "held=$(head -c 83886080 /dev/zero | tr '\\0' a); sleep 3"


@dataclass
class Member:
    """An ordinary user of this machine, and a process of theirs."""

    user: pwd.struct_passwd
    harness: EngineHarness

    def does(self, act: Callable[[EngineHarness], Any]) -> Any:
        """What *act* gives, done by that user in a process of their own."""
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            try:
                os.initgroups(self.user.pw_name, self.user.pw_gid)
                os.setgid(self.user.pw_gid)
                os.setuid(self.user.pw_uid)
                os.environ.update(HOME=self.user.pw_dir, USER=self.user.pw_name)
                os.write(write, json.dumps([act(self.harness)]).encode())
            except BaseException:
                os.write(write, json.dumps(traceback.format_exc()).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = json.loads(pipe.read())
        os.waitpid(pid, 0)
        assert isinstance(said, list), said
        return said[0]

    def runs(self, *command: str) -> str:
        """What *command* says."""
        words = ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}"]
        env = {"HOME": self.user.pw_dir, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [*words, "--init-groups", *command],
            env=env, cwd=self.user.pw_dir, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    programs = ("podman", "busybox", "useradd", "newuidmap")
    missing = [name for name in programs if shutil.which(name) is None]
    if why := why_none() or (missing and f"no {', '.join(missing)}"):
        pytest.skip(str(why))
    folder = tmp_path_factory.mktemp("slurm")
    for each in folder.parents[:3]:
        each.chmod(0o755)
    folder.chmod(0o755)
    with slurm(folder, cpus=2, nodes=("n1",)) as cluster:
        (folder / "munge").chmod(0o755)
        yield cluster


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory, cluster: Slurm) -> Iterator[Member]:
    name, home = f"headway-{token_hex(3)}", tmp_path_factory.mktemp("home")
    os.environ["SLURM_CONF"] = cluster.env["SLURM_CONF"]
    subprocess.run(["useradd", "--no-create-home", f"--home-dir={home}", name], check=True)
    try:
        user = pwd.getpwnam(name)
        os.chown(home, user.pw_uid, user.pw_gid)
        place = Place(home / "place")

        def make(site: str) -> SlurmEngine:
            return SlurmEngine(place, site, SystemClock())

        harness = EngineHarness(make, cluster, home / "place", "all", within_s=60.0)
        found = Member(user, harness)
        root = home / "root"
        (root / "bin").mkdir(parents=True)
        (root / "tmp").mkdir()
        shutil.copy(shutil.which("busybox") or "", root / "bin/busybox")
        for applet in ("sh", "cat", "echo", "id", "head", "tr", "sleep", "touch"):
            (root / "bin" / applet).symlink_to("busybox")
        subprocess.run(["tar", "-C", root, "-cf", home / "image.tar", "."], check=True)
        found.runs("podman", "import", str(home / "image.tar"), IMAGE)
        yield found
    finally:
        os.environ.pop("SLURM_CONF")
        subprocess.run(["pkill", "-KILL", "-u", name], check=False)  # podman's own, which stays
        subprocess.run(["userdel", "--force", name], check=True)


def asked(harness: EngineHarness, command: str, **changes: Any) -> Request:
    """A job in the image; each process counts its keys from the same number."""
    return harness.request(command, **{"key": token_hex(6), "image": IMAGE, **changes})


def ended(harness: EngineHarness, command: str, **changes: Any) -> dict[str, Any]:
    """How a job in the image ended."""
    request = asked(harness, command, **changes)
    key = harness.engine().submit(request).key
    end, used = harness.end(key), harness.engine().used(key)
    assert used is not None
    return {
        "key": key, "kind": end.kind, "code": end.code, "message": end.message,
        "log": harness.log(key), "peak_bytes": used.host_peak_bytes, "cpu_s": used.cpu_s,
    }  # fmt: skip


def test_a_machine_of_the_pool_says_what_starts_images(member: Member) -> None:
    def looked(harness: EngineHarness) -> Any:
        engine = harness.engine()
        pools = with_containers(engine, engine.inspect().pools, SystemClock(), {})
        return [pool.containers for pool in pools], [job.key for job in engine.jobs()]

    (found,), left = member.does(looked)
    assert found["podman"] == "", found
    assert not [key for key in left if key.startswith("look-")]


def test_a_program_runs_in_its_image_as_its_user(member: Member, cluster: Slurm) -> None:
    data = Path(member.user.pw_dir) / "data"
    data.mkdir()
    (data / "given").write_text("of the site\n")
    mounts = (Mount(str(data), "/volumes/data", read_only=True),)
    command = (
        'id -u; echo "$GIVEN"; cat /volumes/data/given; touch /volumes/data/new || echo kept; '
        'echo "$PATH"; echo model > "$HEADWAY_OUTPUTS/model"; cat /etc/debian_version || exit 3'
    )
    env = {"GIVEN": "a 'value' of its own"}
    found = member.does(lambda harness: ended(harness, command, env=env, mounts=mounts))
    assert (found["kind"], found["code"]) == (ExitKind.FAILED, 3), found
    lines = found["log"].splitlines()
    assert lines[:3] == ["0", env["GIVEN"], "of the site"]
    assert "kept" in lines
    assert os.environ["PATH"] not in lines
    outputs = member.harness.engine().outputs(found["key"])
    assert (outputs / "model").read_text() == "model\n"
    assert (outputs / "model").stat().st_uid == member.user.pw_uid
    assert not member.runs("podman", "ps", "--all", "--quiet")


def test_what_it_held_is_measured(member: Member) -> None:
    found = member.does(lambda harness: ended(harness, HOLDS))
    assert found["kind"] == ExitKind.OK, found
    assert 80 * MIB < found["peak_bytes"] < 320 * MIB
    assert found["cpu_s"] > 0


@pytest.mark.parametrize(
    ("command", "grace_s", "code"),
    [(OBEYS, 20.0, 7), ("trap '' TERM; echo up; sleep 300 & sleep 300", 1.0, 137)],
)
def test_it_has_its_grace_and_nothing_is_left(
    member: Member, command: str, grace_s: float, code: int
) -> None:
    def stopped(harness: EngineHarness) -> Any:
        request = asked(harness, command, grace_s=grace_s)
        key = harness.engine().submit(request).key
        harness.up(key)
        harness.engine().cancel([(key, 0)])
        end = harness.end(key)
        return end.kind, end.code, harness.log(key)

    kind, ended_with, log = member.does(stopped)
    assert (kind, ended_with) == (ExitKind.CANCELLED, code), log
    assert ("bye" in log) == (code == 7)
    assert not member.runs("podman", "ps", "--all", "--quiet")
    theirs = ["pgrep", "-u", str(member.user.pw_uid), "-x", "sleep|conmon"]
    assert subprocess.run(theirs, check=False, stdout=subprocess.PIPE).stdout == b""


def test_an_image_that_is_nowhere_says_so(member: Member) -> None:
    def failed(harness: EngineHarness) -> Any:
        request = asked(harness, ":", image="localhost/headway-none:1")
        key = harness.engine().submit(request).key
        return harness.end(key).code, harness.log(key)

    code, log = member.does(failed)
    assert code == 125
    assert "localhost/headway-none:1" in log
