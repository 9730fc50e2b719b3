"""A site on a real Slurm: the job files and commands of own nodes, and what goes wrong."""

import json
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import SLEEPER, LiveSite, live_site, wait_for
from tests.support.slurm import Slurm, account, logins, two_nodes

pytestmark = pytest.mark.slurm

POOL = "all"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "slurm.md").read_text()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    yield from two_nodes(tmp_path_factory.mktemp("slurm"))


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with account(tmp_path_factory.mktemp("member") / "home") as user:
        yield user.pw_name


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, cluster: Slurm, login: str
) -> Iterator[LiveSite]:
    home = tmp_path_factory.mktemp("home") / "h"
    with live_site(home, "process", SLURM_CONF=cluster.env["SLURM_CONF"]) as site:
        site.json("engine", "add", "slurm")
        site.set_block("headway-line", **logins("default", {"*": login}))
        yield site


def job(**changes: Any) -> dict[str, Any]:
    return {
        "name": "j",
        "python": "3",
        "command": ["python3", "-c", SLEEPER, "8"],
        "resources": {"cpus": 1, "host_memory": "64MiB"},
    } | changes


def submitted(site: LiveSite, folder: Path, **changes: Any) -> str:
    path = folder / "job.json"
    path.write_text(json.dumps(job(**changes)))
    run_id: str = site.json("submit", str(path), "--pool", POOL)["run_id"]
    return run_id


def follower_log(site: LiveSite) -> str:
    return (site.home / "state/follower.log").read_text()[-6000:]


def until(site: LiveSite, run_id: str, *states: str) -> dict[str, Any]:
    def seen() -> dict[str, Any] | None:
        view = site.show(run_id)
        return view if view["state"] in states else None

    return wait_for(seen, lambda: f"{site.show(run_id)}\n{follower_log(site)}")


def said_of(site: LiveSite, run_id: str, words: str) -> str:
    """What `headway why` says, once it has *words*."""

    def seen() -> str:
        said = site.run("why", run_id).stdout
        return said if words in said else ""

    said: str = wait_for(seen, lambda: f"{site.run('why', run_id)}\n{follower_log(site)}")
    return said


def in_queue(cluster: Slurm) -> list[str]:
    return cluster.ask("squeue", "-h", "-o", "%i").split()


def test_partitions_are_pools_and_doctor_looks_at_them(site: LiveSite) -> None:
    assert site.json("engine", "add", "slurm")["work_pools"] == {"all": POOL}
    assert site.call("GET", f"work_pools/{POOL}")["description"].startswith("Partition all")
    found = site.run("doctor").stdout
    assert "follower of this node" in found
    assert "pools all" in found, found
    assert "as its member's own login" in found
    assert "images in all: not known" in found


def test_a_job_runs_to_its_end_by_the_same_commands(site: LiveSite, tmp_path: Path) -> None:
    code = SLEEPER + "\nimport os\nopen(os.environ['HEADWAY_OUTPUTS'] + '/model', 'w').write('m')"
    run_id = submitted(site, tmp_path, command=["python3", "-c", code, "60"])
    running = until(site, run_id, "Running")
    assert running["attempt"] == 1
    ended = until(site, run_id, "Completed", "Failed")
    assert ended["state"] == "Completed", follower_log(site)
    assert ended["progress"]["iteration"] == 60
    assert [step["name"] for step in ended["steps"]] == [
        "stage_data", "admit", "train", "update_estimates", "clean_up",
    ]  # fmt: skip
    assert '"iteration": 60' in site.run("logs", run_id).stdout
    got = site.run("outputs", run_id, str(tmp_path / "got"))
    assert got.returncode == 0, got.stderr
    assert list((tmp_path / "got").rglob("model"))
    assert ended["measured"]["host_peak_bytes"] > 0
    steps = {each["name"] for each in ended["steps"]}
    asked = {"flow_runs": {"id": {"any_": [run_id]}}}
    wait_for(
        lambda: (
            {
                each["name"]
                for each in site.call("POST", "task_runs/filter", asked)
                if each["state_type"] == "COMPLETED"
            }
            == steps
        ),
        lambda: f"{site.call('POST', 'task_runs/filter', asked)}\n{follower_log(site)}",
    )
    assert site.call("GET", f"work_pools/{POOL}")["status"] == "READY"


def test_its_user_ends_one_that_runs(site: LiveSite, cluster: Slurm, tmp_path: Path) -> None:
    run_id = submitted(site, tmp_path, command=["sleep", "600"])
    until(site, run_id, "Running")
    assert site.run("cancel", run_id).returncode == 0
    ended = until(site, run_id, "Cancelled")
    assert ended["exit"]["kind"] == "cancelled"
    wait_for(lambda: not in_queue(cluster), lambda: follower_log(site))


def test_what_slurms_own_commands_do_is_told(
    site: LiveSite, cluster: Slurm, tmp_path: Path
) -> None:
    cluster.ask("scontrol", "update", "PartitionName=all", "State=DOWN")
    try:
        run_id = submitted(site, tmp_path, command=["sleep", "600"], max_runtime="30m")
        why = said_of(site, run_id, "its partition is down")
        assert "job " in why
        assert "changed" not in why
        job = in_queue(cluster)[0]
        cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=123", "Nice=50")
        why = said_of(site, run_id, "its nice value is 50, not 0")
        assert "its time limit is 2 h 3 min, not" in why
        cluster.hold(job)
        said_of(site, run_id, "holds it")
    finally:
        cluster.ask("scontrol", "update", "PartitionName=all", "State=UP")
    cluster.release(job)
    until(site, run_id, "Running")
    cluster.cancel(job)
    ended = until(site, run_id, "Cancelled", "Failed")
    assert "somebody cancelled it with the cluster's own commands" in ended["exit"]["message"]


def test_the_second_run_asks_for_what_the_first_one_showed(
    site: LiveSite, cluster: Slurm, tmp_path: Path
) -> None:
    for _ in range(2):
        ended = until(site, submitted(site, tmp_path, name="alike"), "Completed")
        assert ended["exit"]["kind"] == "ok"
    limits = cluster.ask("squeue", "-h", "--states=all", "--name=alike", "-o", "%l").split()
    assert "7:00" in limits
    # Slurm writes a year for one without a limit that its backfill has started.
    assert set(limits) - {"7:00"} <= {"UNLIMITED", "365-00:00:00"}


def test_a_follower_that_is_killed_again_and_again_hands_in_each_run_once(
    site: LiveSite, cluster: Slurm, tmp_path: Path
) -> None:
    count = 'sleep 3; echo x >> "$HEADWAY_OUTPUTS/count"'
    cluster.ask("scontrol", "update", "PartitionName=all", "State=DOWN")
    runs = [
        submitted(site, tmp_path, name=f"n{at}", command=["sh", "-c", count]) for at in range(12)
    ]
    seen: set[int] = set()
    ended: set[str] = set()

    def all_ended() -> bool:
        pid = json.loads((site.home / "state/follower.json").read_text())["pid"]
        if pid not in seen and len(seen) < 8:
            seen.add(pid)
            time.sleep(random.uniform(0.5, 3.0))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if len(seen) == 3:  # on a busy machine all would have ended before
                cluster.ask("scontrol", "update", "PartitionName=all", "State=UP")
        ended.update(run for run in runs[:] if run not in ended and site.show(run)["exit"])
        return len(ended) == len(runs)

    wait_for(all_ended, lambda: follower_log(site))
    assert len(seen) > 2
    for run in runs:
        assert site.show(run)["exit"]["kind"] == "ok"
        assert (site.home / "runs" / run / "outputs/count").read_text() == "x\n"


def test_what_it_cannot_have_is_refused_before_the_queue(site: LiveSite, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    for changes, said in (
        ({"ports": [6006]}, "ports"),
        ({"resources": {"gpus": 3}}, "no node of pool all has more"),
        ({"resources": {"host_memory": "9TiB"}}, "resources.host_memory"),
    ):
        path.write_text(json.dumps(job(**changes)))
        done = site.run("submit", str(path), "--pool", POOL)
        assert done.returncode == 2
        assert said in done.stderr


def test_a_rehearsal_promises_no_start(site: LiveSite, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job()))
    said = site.run("submit", str(path), "--pool", POOL, "--dry-run").stdout
    assert "its cluster's own scheduler" in said
    assert "goes first" not in said


def test_a_run_of_prefects_own_command_goes_there_too(site: LiveSite) -> None:
    run_id = site.start(f"train/{POOL}", job=job())
    assert until(site, run_id, "Completed")["runtime"] == "slurm"


def test_jobs_go_on_while_the_site_is_down(site: LiveSite, cluster: Slurm, tmp_path: Path) -> None:
    run_id = submitted(site, tmp_path, command=["sleep", "20"])
    until(site, run_id, "Running")
    down = site.run("down", "--yes")
    assert "follower" in down.stdout
    assert in_queue(cluster)
    assert site.run("up").returncode == 0
    assert until(site, run_id, "Completed", "Failed")["exit"]["kind"] == "ok"


def test_what_is_registered_anew_leads_to_the_cluster_still(
    cluster: Slurm, login: str, tmp_path: Path
) -> None:
    conf = cluster.env["SLURM_CONF"]
    with live_site(tmp_path / "home", "process", SLURM_CONF=conf) as site:
        assert site.run("up", "--engine", "slurm").returncode == 0
        site.set_block("headway-line", **logins("default", {"*": login}))
        (site.home / "state/registered").unlink()  # as of another version
        assert "registering" in site.run("up").stdout
        assert site.call("GET", "deployments/name/train/default")["work_pool_name"] == POOL
        # A run that names no job is a sample that a machine without images can run.
        for deployment in ("train/default", f"train/{POOL}"):
            view = until(site, site.start(deployment), "Completed", "Failed")
            assert (view["state"], view["progress"]["epoch"]) == ("Completed", 30), view
        # Teams' shares are of own nodes: without --pool it goes to the cluster, too.
        team = logins("default", {"*": login})["teams"]["default"]
        team |= {"max_host_memory_bytes": 2**30}
        site.set_block("headway-line", teams={"default": team})
        path = tmp_path / "job.json"
        path.write_text(json.dumps(job(resources={"cpus": 1, "host_memory": "2GiB"})))

        def refused_by_own_nodes() -> bool:
            return site.run("submit", str(path), "--pool", "gpu").returncode == 2

        wait_for(refused_by_own_nodes, lambda: site.run("submit", str(path), "--pool", "gpu"))
        run_id: str = site.json("submit", str(path))["run_id"]
        assert until(site, run_id, "Completed")["runtime"] == "slurm"


def test_the_page_leads_to_a_finished_job(
    cluster: Slurm, login: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.yaml").write_text(found[1])
    monkeypatch.chdir(folder)
    conf = cluster.env["SLURM_CONF"]
    with live_site(tmp_path / "home", "process", SLURM_CONF=conf) as site:
        said = {}
        for line in re.findall(
            r"^    headway ([^#\n]*)", PAGE.partition("## Ray")[0], re.MULTILINE
        ):
            done = site.run(*line.split())
            assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
            said[line.split()[0]] = done.stdout + done.stderr
            if line.startswith("up"):  # what the page says of a site of root's, as this is one
                site.set_block("headway-line", **logins("default", {"*": login}))
        assert "all (default)" in said["engine"]
        assert "epoch 1/1" in said["submit"]
        assert "epoch 1/1" in said["logs"]
        assert "Completed" in said["show"]
        assert "follower of this node" in said["doctor"]
