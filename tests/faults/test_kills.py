"""Whatever is killed: nothing lost, never twice, nothing left behind."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headway.client import Client
from headway.credentials import Address
from tests.support.site import SLEEPER, LiveSite, sleeper, wait_for

pytestmark = pytest.mark.prefect

STEPS = 40


def program(steps: int) -> list[str]:
    return ["python", "-c", SLEEPER, str(steps)]


def started(site: LiveSite, tmp_path: Path, name: str, steps: int = STEPS) -> str:
    run_id = site.submit(tmp_path, name=name, command=program(steps))
    site.until_training(run_id)
    return run_id


def assert_ran_once(site: LiveSite, run_id: str, steps: int = STEPS) -> None:
    """It completed as its first attempt, and its program ran exactly once."""
    view = site.until(run_id, "Completed", "Failed")
    assert (view["state"], view["attempt"]) == ("Completed", 1), view
    lines = site.run("logs", run_id).stdout.splitlines()
    assert len(lines) == steps
    assert view["progress"]["iteration"] == steps
    assert_nothing_is_left(site, run_id)


def assert_nothing_is_left(site: LiveSite, run_id: str) -> None:
    wait_for(
        lambda: all(run_id not in node["runs"] for node in site.json("nodes")),
        lambda: f"a lease of {run_id} is left: {site.json('nodes')}",
    )
    wait_for(
        lambda: not list((site.home / "containers").glob(f"*{run_id}*")),
        lambda: "its container is left",
    )


def test_a_killed_flow_is_taken_up_by_the_next(site: LiveSite, tmp_path: Path) -> None:
    run_id = started(site, tmp_path, "kill-flow")
    site.kill(site.flow_pid(run_id))
    assert_ran_once(site, run_id)


def test_a_worker_that_ends_or_is_killed_leaves_its_runs_alone(
    process_site: LiveSite, tmp_path: Path
) -> None:
    """It holds no container: which runtime the node has makes no difference."""
    site = process_site
    run_id = started(site, tmp_path, "no-worker", steps=2 * STEPS)
    pid = site.worker_pid()
    site.kill(pid, signal.SIGTERM)
    wait_for(
        lambda: "the worker leaves, its runs go on" in site.worker_log(),
        lambda: "the worker did not leave",
    )
    assert site.run("up").returncode == 0
    assert site.worker_pid() != pid
    site.kill(site.worker_pid())
    assert site.run("up").returncode == 0
    assert_ran_once(site, run_id, steps=2 * STEPS)


@pytest.mark.docker
def test_worker_and_flow_killed_together(docker_site: LiveSite, tmp_path: Path) -> None:
    run_id = started(docker_site, tmp_path, "kill-both")
    flow = docker_site.flow_pid(run_id)
    docker_site.kill(docker_site.worker_pid())
    docker_site.kill(flow)
    assert docker_site.run("up").returncode == 0
    assert_ran_once(docker_site, run_id)


def test_a_run_cancelled_while_its_worker_is_dead(process_site: LiveSite, tmp_path: Path) -> None:
    site = process_site
    run_id = started(site, tmp_path, "cancel-orphan")
    flow = site.flow_pid(run_id)
    site.kill(site.worker_pid())
    site.kill(flow)
    assert site.json("cancel", run_id)["state"] in {"Cancelling", "Cancelled"}
    assert site.run("up").returncode == 0
    view = site.until(run_id, "Cancelled")
    assert_nothing_is_left(site, run_id)
    assert view["run_id"] == run_id


@pytest.mark.docker
def test_a_cancelled_run_is_stopped_and_leaves_nothing(
    docker_site: LiveSite, tmp_path: Path
) -> None:
    run_id = started(docker_site, tmp_path, "cancel")
    assert docker_site.json("cancel", run_id)["state"] == "Cancelling"
    view = docker_site.until(run_id, "Cancelled")
    assert view["exit"]["kind"] == "cancelled"
    assert_nothing_is_left(docker_site, run_id)


def test_a_waiting_run_is_cancelled_at_once(process_site: LiveSite, tmp_path: Path) -> None:
    (node,) = process_site.json("nodes")
    everything = node["host_memory_bytes"] - node["host_reserve_bytes"]
    holder = process_site.submit(
        tmp_path,
        name="holder",
        command=program(2400),  # it is there until it is cancelled
        resources={"host_memory": "2GiB", "cpus": 0.1},
    )
    process_site.until_training(holder)
    waiter = process_site.submit(
        tmp_path, name="waiter", resources={"host_memory": f"{everything}B", "cpus": 0.1}
    )
    process_site.until(waiter, "AwaitingHeadroom")
    assert process_site.json("cancel", waiter)["state"] == "Cancelled"
    assert "cancelled by user " in process_site.show(waiter)["reason"]
    process_site.json("cancel", holder)
    process_site.until(holder, "Cancelled")
    wait_for(
        lambda: waiter not in {entry["run_id"] for entry in process_site.json("queue")},
        lambda: "it is still in the queue",
    )


def test_one_key_is_one_run(process_site: LiveSite, tmp_path: Path) -> None:
    """A hundred times, twenty at once: by the command, and as a script in a loop would do it."""
    job = tmp_path / "job.json"
    job.write_text(json.dumps(sleeper(1)))
    by_command = process_site.json("submit", str(job), "--key", "same")["run_id"]
    gateway = process_site.at_the_gateway()
    operator = Address(gateway["HEADWAY_URL"], gateway["HEADWAY_TOKEN"])

    def submitted(_: int) -> str:
        with Client(operator) as client:
            return str(client.submit(sleeper(1), key="same")["run_id"])

    with ThreadPoolExecutor(20) as threads:
        ids = {by_command, *threads.map(submitted, range(99))}
    assert len(ids) == 1
    assert process_site.until(ids.pop(), "Completed")["attempt"] == 1
