"""What has a counterpart is handed over: arrays, chains, gangs and GPUs in a real Slurm's queue."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.clock import SystemClock
from headway.code.folder import pack
from headway.engine.place import Place
from headway.engine.slurm import SlurmEngine
from headway.model.array import Array
from headway.model.code import CodeManifest
from headway.model.run import ExitKind, RunState
from headway.model.start_forecast import StartForecast
from headway.policy.settings import LINE
from headway.units import GIB
from tests.integration.test_engine_queue import Follower, often, sh
from tests.integration.test_gang import MEET
from tests.support.postgresql import with_ledger
from tests.support.site import let_through
from tests.support.slurm import MEMORY_KILLS, Slurm, account, logins, two_nodes
from tests.support.small_wheel import small_wheel

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("often")]
__all__ = ["often"]


class OnSlurm(Follower):
    """A site of root's, whose members are *login* to Slurm unless it is said otherwise."""

    pool = "all"

    def __init__(self, home: Path, login: str) -> None:
        let_through(home)
        super().__init__(home)
        self.site.ledger.settings.keep(LINE, logins("t", {"*": login}))

    def engine(self) -> Any:
        return SlurmEngine(Place(self.site.settings.slurm_dir), "s", SystemClock())

    def log(self, run_id: str) -> str:
        return (self.site.settings.runs_dir / run_id / "log/attempt-1.log").read_text()

    def ends_well(self, run_id: str) -> None:
        exit_ = self.ended(run_id).exit
        assert exit_ is not None
        assert exit_.kind is ExitKind.OK, exit_


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    types = {"n1": "a100", "n2": "h100"}
    yield from two_nodes(tmp_path_factory.mktemp("slurm"), types, MEMORY_KILLS)


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with account(tmp_path_factory.mktemp("member") / "home") as user:
        yield user.pw_name


@pytest.fixture
def follower(
    tmp_path: Path, cluster: Slurm, login: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OnSlurm]:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    found = OnSlurm(with_ledger(tmp_path), login)
    yield found
    cluster.ask("scancel", "--partition=all")
    found.site.ledger.close()


def test_a_job_has_nothing_of_headways_environment_nor_of_a_login(
    follower: OnSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITES_SECRET", "x")
    monkeypatch.setenv("SLURM_OF_ANOTHER_JOB", "x")
    follower.enqueue("env", *sh("env"), env={"OWN": "y"})
    follower.ends_well("env")
    found = dict(line.partition("=")[::2] for line in follower.log("env").splitlines())
    own, _, others = found["PATH"].partition(":")
    assert own.startswith(str(follower.site.settings.slurm_dir))  # its python
    assert others == "/usr/local/bin:/usr/bin:/bin"
    assert found["OWN"] == "y"
    assert not found.keys() & {"SITES_SECRET", "SLURM_OF_ANOTHER_JOB", "TZ", "LC_ALL"}
    # For one that is told which variables to take the node makes a login first, for seconds.
    assert "SHELL" not in found


def test_who_saves_when_its_time_is_over_goes_on_from_there_with_more(
    follower: OnSlurm, cluster: Slurm
) -> None:
    saves = 'cd "$HEADWAY_CHECKPOINT"; [ -e at ] && exec cat at; '
    saves += "trap 'echo saved > at; exit 0' TERM; while :; do sleep 0.1; done"
    follower.enqueue("slow", *sh(saves))
    follower.until(lambda: follower.run("slow").state is RunState.RUNNING)
    job = cluster.ask("squeue", "-h", "--name=slow", "-o", "%i")
    cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    follower.until(lambda: follower.run("slow").state is RunState.ENDED, within_s=240.0)
    follower.ends_well("slow")
    assert follower.run("slow").attempt == 2
    log = follower.site.settings.runs_dir / "slow/log/attempt-2.log"
    assert log.read_text() == "saved\n"


def test_one_that_slurm_kills_for_its_memory_gets_more(follower: OnSlurm) -> None:
    """Slurm kills the wrapper, too, and says no more of it than that its launch failed."""
    holds = "import time; x = bytearray(120 << 20); time.sleep(4)"
    follower.enqueue("big", "python3", "-c", holds, retries=3)
    follower.until(lambda: follower.run("big").state is RunState.ENDED, within_s=240.0)
    follower.ends_well("big")
    tries = follower.site.ledger.attempts.of_run("big")
    ends = [each.exit for each in tries[:-1]]
    assert ends
    for end in ends:
        assert end is not None
        assert end.kind is ExitKind.OUT_OF_MEMORY
        assert "killed at its memory limit" in end.message


def test_of_an_array_the_member_is_told_that_was_killed_for_its_memory(follower: OnSlurm) -> None:
    ledger, holds = follower.site.ledger, "import time; x = bytearray({n} << 20); time.sleep(6)"
    job = {
        "name": "sizes", "owner": "o", "team": "t", "python": "3",
        "command": ["python3", "-c", holds], "resources": {"cpus": 1, "host_memory": "64MiB"},
    }  # fmt: skip
    array = ledger.arrays.add(
        job, Array({"n": (1, 150)}), name="sizes", owner="o", team="t",
        pool="all", queue="", key=None, submitted_at=ledger.now(),
    )  # fmt: skip
    for index in (1, 2):
        ledger.arrays.join(array.array_id, index, f"s{index}")
    follower.until(lambda: follower.run("s2").state is RunState.ENDED, within_s=240.0)
    for run_id in ("s1", "s2"):
        follower.ends_well(run_id)
    ends = {
        run_id: [each.exit.kind for each in ledger.attempts.of_run(run_id) if each.exit]
        for run_id in ("s1", "s2")
    }
    assert ends["s1"] == [ExitKind.OK]
    assert ends["s2"][0] is ExitKind.OUT_OF_MEMORY


def brought(follower: OnSlurm, project: Path) -> dict[str, Any]:
    """What a job says whose folder *project* is, with requirements."""
    folder, ledger = pack(project), follower.site.ledger
    assert isinstance(folder.manifest, CodeManifest)
    ledger.code.put("t", list(folder.chunks(set(folder.manifest.chunks))), most_bytes=GIB)
    ledger.code.accept("t", folder.manifest)
    resources = {"cpus": 1, "host_memory": "512MiB"}
    code = folder.manifest.content_id
    return {"code": code, "requirements": "requirements.txt", "resources": resources}


def test_the_first_job_makes_the_environment_that_others_of_the_folder_find(
    follower: OnSlurm, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    small_wheel(project, "small")
    (project / "requirements.txt").write_text("--no-index\n--find-links .\nsmall\n")
    (project / "json.py").write_text("raise SystemExit('the maker runs code of the job')")
    code = brought(follower, project)
    both = "small; python -c 'import small; print(small.WORD)'"
    for name in ("one", "two", "three"):
        follower.enqueue(name, *sh(both), **code)
    for name in ("one", "two", "three"):
        follower.ends_well(name)
    logs = [follower.log(name) for name in ("one", "two", "three")]
    assert all("script of small 1.0\nsmall 1.0\n" in log for log in logs)
    assert sum("making the environment of requirements.txt" in log for log in logs) == 1
    (made,) = follower.site.settings.slurm_dir.glob(
        ".environments/*/t/*/*/*/environment/bin/python"
    )
    assert made.readlink().parent == Path("/usr/bin")  # and in no job's folder, which is forgotten


def test_an_environment_that_cannot_be_made_is_told_in_the_log(
    follower: OnSlurm, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "requirements.txt").write_text("--no-index\nno-such-package\n")
    follower.enqueue("none", *sh(":"), **brought(follower, project), retries=0)
    exit_ = follower.ended("none").exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.FAILED
    assert "no environment from requirements.txt: No solution found" in follower.log("none")


def test_a_start_is_told_by_what_came_of_slurms_forecasts(follower: OnSlurm) -> None:
    """Slurm goes by limits: of ten minutes here, of which its jobs have used a third."""
    starts, now = follower.site.ledger.starts, follower.site.ledger.now()
    follower.enqueue("past", *sh(":"))
    follower.ends_well("past")
    for hour in range(1, 13):
        at = now - timedelta(hours=hour)
        later, started = at + timedelta(seconds=600), at + timedelta(seconds=200)
        starts.keep([StartForecast("past", at, 600, 600, 600, at, at, later, 0, 0, True, started)])
    for name in ("full1", "full2"):
        all_ = {"cpus": 2, "host_memory": "64MiB"}
        follower.enqueue(name, *sh("sleep 40"), resources=all_, max_runtime="10m")
    follower.until(lambda: follower.run("full2").state is RunState.RUNNING)
    follower.enqueue("waits", *sh(":"), max_runtime="10m")
    follower.until(lambda: "by what came of 12 of its forecasts" in follower.run("waits").reason)
    reason = follower.run("waits").reason
    assert "by its scheduler's forecast it starts" in reason
    assert "and 12 of 12 such ranges held" in reason
    follower.ends_well("waits")
    starts.settle()
    newest = starts.newest(1, "all")[0]
    assert newest.run_id == "waits"
    assert newest.started_at is not None
    assert newest.planned_s > 2 * (newest.waited_s or 0.0)
    assert starts.newest(20) == []


def test_gpus_of_a_type_are_asked_for_by_it(follower: OnSlurm) -> None:
    one = {"cpus": 1, "host_memory": "64MiB", "gpus": 1, "gpu_type": "H100"}
    follower.enqueue("g", *sh("echo $SLURMD_NODENAME has $CUDA_VISIBLE_DEVICES"), resources=one)
    follower.enqueue("v", *sh(":"), resources=one | {"gpu_type": "V100"})
    follower.ends_well("g")
    assert re.fullmatch(r"n2 has [01]\n", follower.log("g"))
    exit_ = follower.ended("v").exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.REFUSED
    assert "its GPUs are a100, h100" in exit_.message


def test_a_gang_is_one_allocation_whose_parts_meet(follower: OnSlurm, cluster: Slurm) -> None:
    two = {"cpus": 1, "host_memory": "64MiB", "nodes": 2}
    follower.enqueue("pair", "python3", "-c", MEET, "1", resources=two, launch="torch")
    follower.ends_well("pair")
    assert follower.log("pair") == "heard rank 1 of 2\n"
    jobs = cluster.ask("squeue", "-h", "--states=all", "--name=pair", "-o", "%D")
    assert jobs.split() == ["2"]


def test_a_chain_waits_in_slurms_own_queue(follower: OnSlurm, cluster: Slurm) -> None:
    follower.enqueue("first", *sh("sleep 5; exit 0"))
    follower.enqueue("then", *sh(":"), after={"run": "first", "when": "ok"})
    follower.until(lambda: "afterok" in cluster.ask("squeue", "-h", "--name=then", "-o", "%E"))
    follower.until(lambda: "the end of another job" in follower.run("then").reason)
    follower.ends_well("then")
    first, then = follower.run("first"), follower.run("then")
    assert first.ended_at is not None
    assert then.ended_at is not None
    assert first.ended_at <= then.ended_at


def test_who_follows_one_that_failed_never_starts(follower: OnSlurm, cluster: Slurm) -> None:
    follower.enqueue("fails", *sh("sleep 3; exit 1"))
    follower.enqueue("vain", *sh(":"), after={"run": "fails", "when": "ok"})
    follower.until(lambda: cluster.ask("squeue", "-h", "--name=vain"))
    exit_ = follower.ended("vain").exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.CANCELLED
    assert "which ended as failed" in exit_.message


def test_an_array_is_one_job_array_with_its_limit(follower: OnSlurm, cluster: Slurm) -> None:
    ledger = follower.site.ledger
    job = {
        "name": "many", "owner": "o", "team": "t", "python": "3",
        "command": ["sh", "-c", "echo {n}; sleep 1"],
        "resources": {"cpus": 1, "host_memory": "64MiB"},
    }  # fmt: skip
    array = ledger.arrays.add(
        job, Array({"n": tuple(range(1, 7))}, at_most=2), name="many", owner="o", team="t",
        pool="all", queue="", key=None, submitted_at=ledger.now(),
    )  # fmt: skip
    runs = [f"m{index}" for index in range(1, 7)]
    for index, run_id in enumerate(runs, 1):
        ledger.arrays.join(array.array_id, index, run_id)
    ids: set[str] = set()

    def all_ended() -> bool:
        running = cluster.ask("squeue", "-h", "--array", "--name=many", "-t", "R", "-o", "%F")
        assert len(running.split()) <= 2
        ids.update(running.split())
        return all(follower.run(run_id).state is RunState.ENDED for run_id in runs)

    follower.until(all_ended)
    assert len(ids) == 1
    for index, run_id in enumerate(runs, 1):
        follower.ends_well(run_id)
        assert follower.log(run_id) == f"{index}\n"
